package integration

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/test/kit/apiproxy"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
)

// TestJobWaitsForATakenName verifies that the operator does not touch an object of another owner whose name a job
// needs, and that the job waits for the name.
func TestJobWaitsForATakenName(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	landlord := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "landlord"}}
	w.Create(landlord)
	yes := true
	owners := []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: landlord.Name, UID: landlord.UID, Controller: &yes}}

	for what, taken := range map[string]client.Object{
		"pod": &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod-w-1", OwnerReferences: owners},
			Spec: jobs.Role("", 1, kubelet.Run).Template.Spec},
		// This pod has the job's labels but another owner.
		"look-alike": &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "look-alike-w-0", OwnerReferences: owners, Labels: map[string]string{
			batch.LabelJobName: "look-alike", batch.LabelJobKind: "GenericJob", batch.LabelReplicaType: "w", batch.LabelReplicaRank: "0"}},
			Spec: jobs.Role("", 1, kubelet.Run).Template.Spec},
		"service": &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "service", OwnerReferences: owners},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}},
		"group":  &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "group", OwnerReferences: owners}, Spec: scheduling.PodGroupSpec{MinMember: 1, Queue: "q"}},
		"orphan": &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "orphan-w-0"}, Spec: jobs.Role("", 1, kubelet.Run).Template.Spec},
	} {
		t.Run(what, func(t *testing.T) {
			w := w.in(t)
			w.Create(taken)
			job := jobs.New(what, jobs.Role("w", 2, kubelet.Exit, "0"))
			job.Spec.Service = &batch.ServiceOption{}
			job.Spec.Scheduler = &batch.SchedulePolicy{T9kScheduler: &batch.T9kScheduler{Queue: "default"}}
			w.Create(job)
			c := w.awaitReason(what, batch.ReasonNameTaken)
			owner := `ConfigMap "landlord"`
			if what == "orphan" {
				owner = "nobody"
			}
			if !strings.Contains(c.Message, owner) || !strings.Contains(c.Message, `"`+taken.GetName()+`"`) {
				t.Errorf("the message names neither %s nor %s: %s", owner, taken.GetName(), c.Message)
			}
			w.Await("an event reports it", func() error {
				all := w.events(what)
				if !slices.ContainsFunc(all, func(e string) bool { return strings.HasPrefix(e, "NameTaken: ") && strings.Contains(e, owner) }) {
					return fmt.Errorf("the events are %q", all)
				}
				return nil
			})
			held := taken.DeepCopyObject().(client.Object)
			w.Must(w.Get(taken.GetName(), held))
			if held.GetUID() != taken.GetUID() || held.GetDeletionTimestamp() != nil {
				t.Errorf("%s was replaced or is being deleted", taken.GetName())
			}
			if _, pod := taken.(*corev1.Pod); !pod {
				for name := range w.pods() {
					if strings.HasPrefix(name, what+"-") {
						t.Errorf("pod %s exists before the %T that it needs", name, taken)
					}
				}
			}
			w.Must(w.Client.Delete(t.Context(), taken))
			if j := w.awaitPhase(what, batch.JobSucceeded); j.Status.BackoffCount != 0 {
				t.Errorf("%d restarts", j.Status.BackoffCount)
			}
		})
	}
}

// TestOperatorRetriesTakenNameEveryTwoSeconds verifies that the operator retries a taken name every 2 s, however long
// it is taken, because no event reports that the name has become free.
func TestOperatorRetriesTakenNameEveryTwoSeconds(t *testing.T) {
	w := newWorld(t)
	p := apiproxy.Start(t, w.Env.Config)
	startOperator(t, p.Kubeconfig)
	taken := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "job-w-0"}, Spec: jobs.Role("", 1, kubelet.Run).Template.Spec}
	w.Create(taken)
	w.Create(jobs.New("job", jobs.Role("w", 1, kubelet.Run)))
	w.awaitReason("job", batch.ReasonNameTaken)
	const refusals = 12 // if the intervals doubled, the next one would be 20 s
	attempts := func() int { return len(p.Seen("POST", w.Namespace+"/pods")) }
	w.Await("the operator retries the name", func() error {
		if n := attempts(); n < refusals {
			return fmt.Errorf("it has tried %d times", n)
		}
		return nil
	})
	all := p.Seen("POST", w.Namespace+"/pods")
	if d := all[refusals-1].At.Sub(all[2].At); d < 2*time.Second*(refusals-4) {
		t.Errorf("%d attempts took %s", refusals-2, d)
	}
	if n := len(p.Seen("PUT", w.Namespace+"/genericjobs/job/status")); n > 3 {
		t.Errorf("the status was written %d times", n)
	}
	const doubled = 20 * time.Second // the next interval if intervals doubled
	freed := time.Now()
	w.Must(w.Client.Delete(t.Context(), taken, client.GracePeriodSeconds(0)))
	w.awaitPhase("job", batch.JobRunning)
	for _, r := range p.Seen("POST", w.Namespace+"/pods") {
		if d := r.At.Sub(freed); r.Code == http.StatusCreated && d > doubled/2 {
			t.Errorf("the pod was created %s after its name was free", d)
		}
	}
}

// TestJobWaitsForThePodsOfItsPredecessor verifies that a job that is created again while a pod of its predecessor
// terminates reports the owner of the name, and continues when that pod is deleted.
func TestJobWaitsForThePodsOfItsPredecessor(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	old := jobs.New("job", jobs.Role("w", 1, kubelet.Run))
	old.Spec.ReplicaSpecs[0].Template.Finalizers = []string{"example.org/hold"}
	w.Create(old)
	w.awaitPhase("job", batch.JobRunning)
	w.Must(w.Client.Delete(t.Context(), old, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	w.Create(jobs.New("job", jobs.Role("w", 1, kubelet.Exit, "0")))
	w.Await("the job reports that a pod of the previous one has not ended", func() error {
		c := jobs.Condition(w.job("job"), batch.JobRunningCondition)
		if c.Reason != batch.ReasonNameTaken || !strings.Contains(c.Message, `belongs to the previous GenericJob "job" and has not ended yet`) {
			return fmt.Errorf("its condition is %s: %s", c.Reason, c.Message)
		}
		if strings.Contains(c.Message, "delete or rename") {
			t.Errorf("the message is: %s", c.Message)
		}
		return nil
	})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "job-w-0"}}
	w.Must(w.Client.Patch(t.Context(), pod, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	w.awaitPhase("job", batch.JobSucceeded)
}
