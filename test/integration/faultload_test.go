package integration

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/test/kit/apiproxy"
	"tensorstack.dev/batch/test/kit/history"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
)

var (
	faults  = flag.Bool("faults", false, "run the tests that break something while jobs run (make test-faults)")
	outage  = flag.Duration("outage", time.Minute, "how long the API server is away in TestJobsSurviveLongOutage")
	foreign = flag.Int("foreign", 10_000, "number of pods and jobs of others in TestJobsSurviveForeignObjects")
)

const (
	// loadJobs is the number of restarting GenericJobs of a load, and loadReplicas the number of replicas of each.
	loadJobs, loadReplicas = 4, 5
	// loadWorkers is the number of workers of each training job of a load.
	loadWorkers = 2
	// loadPods is the number of pods that these jobs need: each replica of a GenericJob and the master of each of the
	// two training jobs has four pods, because it fails three times. The workers of the training jobs have one pod
	// each.
	loadPods = loadJobs*loadReplicas*4 + 2*(4+loadWorkers)
	// loadRuns is the number of replicas of the job that runs throughout the load.
	loadRuns = 3
)

// load is a set of jobs for an operator while something fails: jobs of all kinds that restart and finish, with
// Services and PodGroups, and a job that runs throughout and whose pods must not be replaced.
type load struct {
	*world
	proxy   *apiproxy.Proxy
	history *history.History
	began   time.Time
	runs    map[string]types.UID // pods of the job that runs throughout
	all     []*batch.GenericJob  // the restarting GenericJobs
	// training holds the training jobs by the names of their masters' pods.
	training map[string]client.Object
}

// stormyTraining returns, by the names of their masters' pods, training jobs whose master fails as often as the limit
// allows and then succeeds. If the operator misses a restart, the count is too low; if it counts one twice, the job
// fails.
func stormyTraining() map[string]client.Object {
	replicas := func(name, container string, n int32, command ...string) batch.TrainingReplicaSpec {
		role := jobs.Role(name, n, command...)
		role.Template.Spec.Containers[0].Name = container
		return batch.TrainingReplicaSpec{Type: name, Replicas: role.Replicas, Template: role.Template}
	}
	spec := batch.TrainingSpec{RunPolicy: &batch.RunPolicy{BackoffLimit: new(int32(3))},
		Scheduler: &batch.SchedulePolicy{T9kScheduler: &batch.T9kScheduler{Queue: "default"}}}
	torch := &batch.PyTorchTrainingJob{ObjectMeta: metav1.ObjectMeta{Name: "torch"}, Spec: batch.PyTorchTrainingJobSpec{TrainingSpec: *spec.DeepCopy(), ReplicaSpecs: []batch.PyTorchReplicaSpec{
		{TrainingReplicaSpec: replicas("master", "pytorch", 1, kubelet.Exit, "1", "1", "1", "0")}, {TrainingReplicaSpec: replicas("worker", "pytorch", loadWorkers, kubelet.Run)}}}}
	tensorflow := &batch.TensorFlowTrainingJob{ObjectMeta: metav1.ObjectMeta{Name: "tf"}, Spec: batch.TensorFlowTrainingJobSpec{TrainingSpec: *spec.DeepCopy(), ReplicaSpecs: []batch.TrainingReplicaSpec{
		replicas("chief", "tensorflow", 1, kubelet.Exit, "1", "1", "1", "0"), replicas("worker", "tensorflow", loadWorkers, kubelet.Run)}}}
	return map[string]client.Object{"torch-master-0": torch, "tf-chief-0": tensorflow}
}

// checkTraining waits until a training job has succeeded, and checks its restart counts.
func (l *load) checkTraining(master string, job client.Object) {
	l.Helper()
	l.Await("job "+job.GetName()+" has succeeded", func() error {
		if err := l.Get(job.GetName(), job); err != nil {
			return err
		}
		if s := jobs.StatusOf(job); s.Phase != batch.JobSucceeded {
			return fmt.Errorf("it is %q, with the conditions %+v", s.Phase, s.Conditions)
		}
		return nil
	})
	if n := jobs.StatusOf(job).Restarts; n != 3 {
		l.Errorf("%s has had %d incidents, want 3", job.GetName(), n)
	}
	want := map[string]int32{master: 3}
	for rank := range loadWorkers {
		want[fmt.Sprintf("%s-worker-%d", job.GetName(), rank)] = 0
	}
	for name, restarts := range want {
		if r := jobs.Replica(job, name); r.RestartCount != restarts || r.Attempt != restarts {
			l.Errorf("%s was restarted %d times, in attempt %d, want %d", name, r.RestartCount, r.Attempt, restarts)
		}
	}
}

// created returns the number of pods that were created for the restarting jobs.
func (l *load) created() int {
	l.Helper()
	n := 0
	for _, job := range l.all {
		for rank := range loadReplicas {
			n += len(l.history.Attempts(fmt.Sprintf("%s-w-%d", job.Name, rank)))
		}
	}
	for master, job := range l.training {
		n += len(l.history.Attempts(master))
		for rank := range loadWorkers {
			n += len(l.history.Attempts(fmt.Sprintf("%s-worker-%d", job.GetName(), rank)))
		}
	}
	return n
}

// requireFaults skips the test unless -faults is set.
func requireFaults(t *testing.T) {
	t.Helper()
	if !*faults {
		t.Skip("breaks something while jobs run: make test-faults")
	}
}

// newLoad prepares a load on a control plane. It skips the test unless -faults is set. The test must start the operator
// with the kubeconfig of proxy.
func newLoad(t *testing.T) *load {
	t.Helper()
	requireFaults(t)
	return newLoadOn(newWorld(t))
}

func newLoadOn(w *world) *load {
	w.Helper()
	return &load{world: w, proxy: apiproxy.Start(w.T, w.Env.Config), history: history.Record(w.Test), runs: map[string]types.UID{}}
}

// settleIn creates the job that runs throughout, and returns when it is running.
func (l *load) settleIn() {
	l.Helper()
	l.Create(jobs.New("runs", jobs.Restarting(jobs.Role("w", loadRuns, kubelet.Run), batch.RestartOnFailure, 3)))
	l.awaitPhase("runs", batch.JobRunning)
	for name, pod := range l.pods() {
		l.runs[name] = pod.UID
	}
}

// begin creates the restarting jobs, and returns when the first of their pods exists.
func (l *load) begin() {
	l.Helper()
	l.began = time.Now()
	for i := range loadJobs {
		l.all = append(l.all, stormy(fmt.Sprintf("job-%d", i), loadReplicas))
		l.Create(l.all[i])
	}
	l.training = stormyTraining()
	for _, job := range l.training {
		l.Create(job)
	}
	l.Await("a pod of a job that restarts is there", func() error {
		if len(l.pods()) <= loadRuns {
			return errors.New("there is none")
		}
		return nil
	})
}

// awaitWrite waits until the API server has accepted a POST, PUT or DELETE in the test's namespace that an operator
// sent after start. It returns the time from start to the first such request. The requests are those that the given
// proxies have seen, by default the proxy of the load.
func (l *load) awaitWrite(start time.Time, proxies ...*apiproxy.Proxy) (delay time.Duration) {
	l.Helper()
	if proxies == nil {
		proxies = []*apiproxy.Proxy{l.proxy}
	}
	l.Await("a write of an operator succeeds", func() error {
		found := false
		for _, p := range proxies {
			for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
				for _, r := range p.Seen(method, "") {
					if d := r.At.Sub(start); d > 0 && r.Code >= 200 && r.Code < 300 && strings.Contains(r.Path, l.Namespace) && (!found || d < delay) {
						delay, found = d, true
					}
				}
			}
		}
		if !found {
			return errors.New("there is none")
		}
		return nil
	})
	return delay
}

// finish checks that each job finishes with the right counts, that no unnecessary pod was created, that the job that
// runs throughout was not disturbed, and that deleting the jobs leaves no objects. It returns the time from begin until
// the last job had finished.
func (l *load) finish() time.Duration {
	l.Helper()
	for _, job := range l.all {
		l.checkStormy(job)
	}
	for master, job := range l.training {
		l.checkTraining(master, job)
	}
	took := time.Since(l.began)
	l.settle()
	created := l.created()
	l.Logf("%d pods created, %d needed; the jobs took %s", created, loadPods, took.Round(10*time.Millisecond))
	if created != loadPods {
		l.Errorf("%d pods were created, and %d were needed", created, loadPods)
	}
	if runs := l.awaitPhase("runs", batch.JobRunning); runs.Status.Restarts != 0 {
		l.Errorf("the job that runs throughout has had %d incidents", runs.Status.Restarts)
	}
	pods := l.pods()
	for name, uid := range l.runs {
		if pods[name] == nil || pods[name].UID != uid {
			l.Errorf("pod %s of the job that runs throughout was replaced", name)
		}
	}
	l.checkNothingLeft()
	return took
}

// checkNothingLeft deletes all jobs and waits until no object that was created for them exists.
func (l *load) checkNothingLeft() {
	l.Helper()
	in := client.InNamespace(l.Namespace)
	made := []client.ObjectList{&corev1.PodList{}, &corev1.ServiceList{}, &scheduling.PodGroupList{}}
	for _, k := range kinds.All {
		l.Must(l.Client.DeleteAllOf(l.Context(), k.New().(client.Object), in))
		made = append(made, jobs.ListOf(k))
	}
	l.Await("nothing of the jobs is left", func() error {
		for _, list := range made {
			if err := l.Client.List(l.Context(), list, in); err != nil {
				return err
			}
			if n := meta.LenList(list); n > 0 {
				return fmt.Errorf("%d are of the %T", n, list)
			}
		}
		return nil
	})
}
