package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/test/kit/apiproxy"
	"tensorstack.dev/batch/test/kit/await"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
	"tensorstack.dev/batch/test/kit/namespace"
)

// stormy returns a job in which each replica fails as often as its limit allows and then succeeds. If the operator
// misses a restart, the count is too low; if it counts one twice, the job fails.
func stormy(name string, replicas int32) *batch.GenericJob {
	job := jobs.New(name, jobs.Restarting(jobs.Role("w", replicas, kubelet.Exit, "1", "1", "1", "0"), batch.RestartOnFailure, 3))
	job.Spec.Service = &batch.ServiceOption{}
	job.Spec.Scheduler = &batch.SchedulePolicy{T9kScheduler: &batch.T9kScheduler{Queue: "default"}}
	return job
}

// checkStormy waits until a stormy job has succeeded, and checks its restart counts and objects.
func (w *world) checkStormy(job *batch.GenericJob) {
	w.Helper()
	replicas := *job.Spec.ReplicaSpecs[0].Replicas
	end := w.awaitPhase(job.Name, batch.JobSucceeded)
	for _, r := range end.Status.Tasks[0].Replicas {
		if r.RestartCount != 3 || r.Attempt != 3 {
			w.Errorf("%s was restarted %d times, in attempt %d, not 3 times and in attempt 3", r.Name, r.RestartCount, r.Attempt)
		}
	}
	if n := end.Status.BackoffCount; n < 3 || n > 3*replicas || n != end.Status.Restarts {
		w.Errorf("%d incidents and %d charged, not 3 to %d", end.Status.Restarts, n, 3*replicas)
	}
	for _, o := range []client.Object{&corev1.Service{}, &scheduling.PodGroup{}} {
		if err := w.Get(job.Name, o); err != nil || !metav1.IsControlledBy(o, end) {
			w.Errorf("%T %s: %v, %v", o, job.Name, o.GetOwnerReferences(), err)
		}
	}
}

// TestJobSurvivesOperatorKilledAtAnyWrite verifies that a job ends with the right counts although the operator is
// repeatedly killed at one of its first writes, either before the write or between the write and its answer.
func TestJobSurvivesOperatorKilledAtAnyWrite(t *testing.T) {
	const kills = 30
	w := newWorld(t)
	p := apiproxy.Start(t, w.Env.Config)
	job := stormy("job", 8)
	w.Create(job)
	random := rand.New(rand.NewPCG(1, 2))
	for n := range kills {
		o := startOperator(t, p.Kubeconfig)
		at, after := 1+random.IntN(4), random.IntN(3) > 0 // mostly after, because the job needs writes that succeed
		writes := 0
		p.Decide(func(r *http.Request) apiproxy.Fate {
			if !apiproxy.IsWrite(r) {
				return apiproxy.Fate{}
			}
			if writes++; writes != at {
				return apiproxy.Fate{Lost: writes > at} // lose the remaining writes of the killed process
			}
			return apiproxy.Fate{Lost: !after, Unanswered: after, Then: o.Kill}
		})
		end := &batch.GenericJob{}
		w.Await("the operator is killed, or the job has ended", func() error {
			w.Must(w.Get("job", end))
			if o.Running() && end.Status.Phase != batch.JobSucceeded {
				return fmt.Errorf("the operator runs, and the job is %s", end.Status.Phase)
			}
			return nil
		})
		if end.Status.Phase == batch.JobSucceeded {
			if n < kills/2 {
				t.Fatalf("the job ended after %d kills", n)
			}
			break
		}
	}
	p.Decide(nil)
	startOperator(t, p.Kubeconfig)
	w.checkStormy(job)
}

// TestOperatorRetriesLostWritesAndAnswers verifies that the operator recovers from lost writes and lost answers.
func TestOperatorRetriesLostWritesAndAnswers(t *testing.T) {
	w := newWorld(t)
	p := apiproxy.Start(t, w.Env.Config)
	random := rand.New(rand.NewPCG(3, 4))
	p.Decide(func(r *http.Request) apiproxy.Fate {
		return apiproxy.Fate{Lost: apiproxy.IsWrite(r) && random.IntN(12) == 0, Unanswered: apiproxy.IsWrite(r) && random.IntN(12) == 0}
	})
	startOperator(t, p.Kubeconfig)
	var all []*batch.GenericJob
	for i := range 3 {
		all = append(all, stormy(fmt.Sprintf("job-%d", i), 4))
		w.Create(all[i])
	}
	for _, job := range all {
		w.checkStormy(job)
	}
}

// TestJobsSurviveAPIServerOutage verifies that jobs and the operator survive a stop of the API server and a kill of its
// etcd.
func TestJobsSurviveAPIServerOutage(t *testing.T) {
	w := newWorld(t)
	o := startOperator(t, w.Env.Kubeconfig)
	all := []*batch.GenericJob{stormy("a", 5), stormy("b", 5), jobs.New("c", jobs.Role("w", 2, kubelet.Run))}
	for _, job := range all {
		w.Create(job)
	}
	w.Await("a pod exists", func() error {
		if len(w.pods()) == 0 {
			return errors.New("there are no pods")
		}
		return nil
	})
	w.Must(w.Env.StopComponent(local.APIServer))
	w.Must(w.Env.Kill(local.Etcd))
	w.Await("the operator logs the outage", func() error {
		if !strings.Contains(o.Log.String(), "connection refused") {
			return errors.New("the log has no error")
		}
		return nil
	})
	w.Must(w.Env.StartComponent(local.APIServer))
	w.Must(w.Env.AwaitReady(t.Context()))
	w.checkStormy(all[0])
	w.checkStormy(all[1])
	w.awaitPhase("c", batch.JobRunning)
	if !o.Running() {
		t.Error("the operator has ended")
	}
}

// TestNewLeaderTakesOverFromFrozenLeader verifies that a job ends with the right counts although its leading operator
// is frozen in the middle of the job, another operator takes over, and then the old leader continues as if it were
// still the leader. It also verifies that a leader that receives SIGTERM releases its lease.
func TestNewLeaderTakesOverFromFrozenLeader(t *testing.T) {
	w := newWorld(t)
	w.Must(client.IgnoreAlreadyExists(w.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "t9k-system"}})))
	lead := []*apiproxy.Proxy{apiproxy.Start(t, w.Env.Config), apiproxy.Start(t, w.Env.Config)}
	first := startOperator(t, lead[0].Kubeconfig, electing)
	lease := &coordination.Lease{}
	awaitHolder := func(old string) string {
		w.Helper()
		w.Await("another operator leads", func() error {
			if err := w.Client.Get(t.Context(), types.NamespacedName{Namespace: "t9k-system", Name: "t9k-operator"}, lease); err != nil {
				return err
			}
			if h := lease.Spec.HolderIdentity; h == nil || *h == "" || *h == old {
				return errors.New("the lease has no holder, or the old one")
			}
			return nil
		})
		return *lease.Spec.HolderIdentity
	}
	holder := awaitHolder("")
	second := startOperator(t, lead[1].Kubeconfig, electing)

	job := stormy("job", 6)
	w.Create(job)
	frozen := make(chan struct{})
	writes := 0
	lead[0].Decide(func(r *http.Request) apiproxy.Fate {
		if apiproxy.IsWrite(r) && !strings.Contains(r.URL.Path, "/leases/") {
			if writes++; writes == 10 {
				first.Signal(syscall.SIGSTOP)
				close(frozen)
			}
		}
		return apiproxy.Fate{}
	})
	select {
	case <-frozen:
	case <-time.After(await.Patience):
		t.Fatal("the leader has not made its tenth write")
	}
	awaitHolder(holder)
	w.Await("the new leader writes the status", func() error {
		if len(lead[1].Seen("PUT", w.Namespace+"/genericjobs/job/status")) == 0 {
			return errors.New("it has not written the status")
		}
		return nil
	})
	first.Signal(syscall.SIGCONT)
	select {
	case <-first.Ended(): // it exits without its lease; a kubelet would restart it
	case <-time.After(await.Patience):
		t.Error("the old leader keeps running")
	}
	w.checkStormy(job)

	// A leader that terminates after SIGTERM releases the lease, so that its successor need not wait until the lease
	// expires.
	holder = *lease.Spec.HolderIdentity
	versions, err := w.Core.CoordinationV1().Leases("t9k-system").Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=t9k-operator"})
	w.Must(err)
	defer versions.Stop()
	startOperator(t, lead[0].Kubeconfig, electing)
	second.Signal(syscall.SIGTERM)
	for e := range versions.ResultChan() {
		now, ok := e.Object.(*coordination.Lease)
		if !ok {
			t.Fatalf("watching the lease: %v", e.Object)
		}
		h := now.Spec.HolderIdentity
		if h == nil || *h == "" {
			break
		}
		if *h != holder {
			t.Errorf("%s leads, and %s has not given the lease up", *h, holder)
			break
		}
	}
	awaitHolder(holder)
	again := stormy("again", 3)
	w.Create(again)
	w.checkStormy(again)
}

// TestEventsDuringAFreezeCountOnce verifies that the operator counts no event twice that happened while it was frozen,
// when it continues with an old cache, and that a job that replaced another one of its name in the meantime starts
// anew.
func TestEventsDuringAFreezeCountOnce(t *testing.T) {
	w := newWorld(t)
	o := startOperator(t, w.Env.Kubeconfig)
	job := jobs.New("job", jobs.Restarting(jobs.Role("w", 5, kubelet.Run), batch.RestartOnFailure, 1), jobs.Role("helper", 1, kubelet.Run))
	w.Create(job)
	w.awaitPhase("job", batch.JobRunning)

	o.Freeze(t)
	w.finish("job-w-0", 1) // is restarted
	w.finish("job-w-1", 0) // succeeds
	w.Must(w.Client.Delete(t.Context(), w.pods()["job-w-2"]))
	w.finish("job-w-3", 1) // fails; its pod is deleted below
	w.Await("job-w-3 ended more than a second ago", func() error {
		end := w.pods()["job-w-3"].Status.ContainerStatuses[0].State.Terminated.FinishedAt
		if time.Since(end.Time) < 2*time.Second { // times have a resolution of a second
			return errors.New("it has just ended")
		}
		return nil
	})
	w.Must(w.Client.Delete(t.Context(), w.pods()["job-w-3"]))
	w.Await("two pods no longer exist", func() error {
		if n := len(w.pods()); n != 4 {
			return fmt.Errorf("there are %d pods", n)
		}
		return nil
	})
	w.patch("job", `{"spec":{"cleanUpPolicy":"Unfinished"}}`)
	o.Signal(syscall.SIGCONT)

	w.Await("the status contains all events", func() error {
		j := w.job("job")
		all := j.Status.Tasks[0].Replicas
		got := fmt.Sprint(j.Status.ObservedGeneration, " ", j.Status.Aggregate.Running, " ", j.Status.Aggregate.Succeeded)
		for _, r := range all {
			got += fmt.Sprintf(" %d/%d", r.RestartCount, r.Attempt)
		}
		// unseen and seen are the accepted statuses. If the operator does not see the end of job-w-3 before the pod's
		// deletion, the pod counts as deleted, like job-w-2. The event of its end and the event of its deletion
		// arrive one after the other, so the operator may reconcile between them and charge the restart.
		const unseen, seen = "2 5 1 1/1 0/0 0/1 0/1 0/0", "2 5 1 1/1 0/0 0/1 1/1 0/0"
		if got != unseen && got != seen {
			return fmt.Errorf("generation, running, succeeded, restarts/attempts are %s, neither %s nor %s", got, unseen, seen)
		}
		return nil
	})

	// While the operator is frozen, the job is paused, resumed and deleted, and another job with its name is created.
	o.Freeze(t)
	w.patch("job", `{"spec":{"runMode":{"pause":{"enabled":true}}}}`)
	w.patch("job", `{"spec":{"runMode":{"pause":{"enabled":false}}}}`)
	w.Must(w.Client.Delete(t.Context(), job))
	w.Await("the job no longer exists", func() error { return namespace.Gone(w.Get("job", &batch.GenericJob{})) })
	next := stormy("job", 2)
	w.Create(next)
	o.Signal(syscall.SIGCONT)
	w.checkStormy(next)
	for name, pod := range w.pods() {
		if !metav1.IsControlledBy(pod, next) {
			t.Errorf("pod %s is owned by %v", name, pod.OwnerReferences)
		}
	}
}

// TestPodOnALostNodeIsReplaced verifies that the operator deletes a pod by force and replaces it without a charge if
// its node was deleted or does not answer, because the pod cannot terminate. The operator never does so on a ready
// node.
func TestPodOnALostNodeIsReplaced(t *testing.T) {
	w := newWorld(t)
	p := apiproxy.Start(t, w.Env.Config)
	startOperator(t, p.Kubeconfig, "jobs: {forceDeleteAfter: 1s}")
	for name, ready := range map[string]corev1.ConditionStatus{"lost-ready": corev1.ConditionTrue, "lost-silent": corev1.ConditionUnknown, "lost-gone": ""} {
		if ready != "" {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
			w.Must(w.Client.Create(t.Context(), node))
			t.Cleanup(func() {
				if err := w.Client.Delete(context.Background(), node); err != nil {
					t.Error(err)
				}
			})
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
			w.Must(w.Client.Status().Update(t.Context(), node))
		}
		job := jobs.New(name, jobs.Role("w", 1, kubelet.Run))
		job.Spec.ReplicaSpecs[0].Template.Spec.NodeSelector = map[string]string{kubelet.NodeKey: name}
		w.Create(job)
		w.awaitPhase(name, batch.JobRunning)
	}
	old := w.pods()
	for _, pod := range old {
		w.Must(w.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(1)))
	}
	for _, job := range []string{"lost-silent", "lost-gone"} {
		w.Await("the pod of "+job+" is replaced", func() error {
			j := w.job(job)
			if r := j.Status.Tasks[0].Replicas[0]; r.RestartCount != 0 || r.Attempt != 1 || r.Phase != batch.ReplicaRunning {
				return fmt.Errorf("the replica is %+v", r)
			}
			return nil
		})
		w.Await("an event reports it", func() error {
			if all := w.events(job); !slices.ContainsFunc(all, func(e string) bool { return strings.HasPrefix(e, "NodeLost: ") }) {
				return fmt.Errorf("the events are %q", all)
			}
			return nil
		})
	}
	w.Await("the operator has checked the ready node", func() error {
		if len(p.Seen("GET", "/nodes/lost-ready")) == 0 {
			return errors.New("it has not read the node")
		}
		return nil
	})
	w.settle()
	if pod := w.pods()["lost-ready-w-0"]; pod == nil || pod.UID != old["lost-ready-w-0"].UID {
		t.Error("a pod on a ready node was deleted by force")
	}
	for _, pod := range w.pods() {
		w.Must(w.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	}
}
