package integration

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
	"tensorstack.dev/batch/test/kit/program"
)

// frozenRounds is the number of jobs for each case of TestEndsDuringAFreezeComeBeforeLaterChanges.
const frozenRounds = 6

// TestEndsDuringAFreezeComeBeforeLaterChanges verifies that results of pods count if they precede a change of the job.
// While the operator is frozen, pods finish, and then the job is paused, switched to debug mode, or given a deadline.
// When the operator continues, it learns of the results and of the change at once and in any order.
func TestEndsDuringAFreezeComeBeforeLaterChanges(t *testing.T) {
	w := newWorld(t)
	o := startOperator(t, w.Env.Kubeconfig)
	pause, debug := `{"spec":{"runMode":{"pause":{"enabled":true}}}}`, `{"spec":{"runMode":{"debug":{"enabled":true}}}}`
	deadline := `{"spec":{"runPolicy":{"activeDeadlineSeconds":1}}}`
	sorts := []struct {
		name, patch string
		codes       []int32
		want        batch.JobPhase
	}{
		{"pause-done", pause, []int32{0, 0}, batch.JobSucceeded},
		{"pause-failed", pause, []int32{0, 1}, batch.JobFailed},
		{"debug-done", debug, []int32{0, 0}, batch.JobSucceeded},
		{"debug-failed", debug, []int32{1, 0}, batch.JobFailed},
		{"deadline-done", deadline, []int32{0}, batch.JobSucceeded},
	}
	each := func(do func(sort int, name string)) {
		for i := range sorts {
			for round := range frozenRounds {
				do(i, fmt.Sprintf("%s-%d", sorts[i].name, round))
			}
		}
	}
	jobOf := func(sort int, name string) (client.Object, func() batch.JobStatus) {
		if sorts[sort].patch == deadline {
			j := &batch.PyTorchTrainingJob{}
			w.Must(yaml.Unmarshal([]byte(`spec: {replicaSpecs: [{type: w, replicas: 2, template: {spec: {containers: [{name: pytorch, image: none, command: [run]}]}}}]}`), j))
			j.Name = name
			return j, func() batch.JobStatus { return j.Status.JobStatus }
		}
		j := jobs.New(name, jobs.Role("w", 2, kubelet.Run))
		return j, func() batch.JobStatus { return j.Status.JobStatus }
	}
	awaitPhase := func(sort int, name string, want batch.JobPhase) {
		w.Helper()
		w.Await(name+" is "+string(want), func() error {
			j, status := jobOf(sort, name)
			w.Must(w.Get(name, j))
			if s := status(); s.Phase != want {
				return fmt.Errorf("it is %s: %+v", s.Phase, s.Conditions)
			}
			return nil
		})
	}
	each(func(sort int, name string) { j, _ := jobOf(sort, name); w.Create(j) })
	each(func(sort int, name string) { awaitPhase(sort, name, batch.JobRunning) })

	o.Freeze(t)
	before := map[string]metav1.Object{}
	each(func(sort int, name string) {
		for rank, code := range sorts[sort].codes {
			w.finish(fmt.Sprintf("%s-w-%d", name, rank), code)
		}
	})
	for name, pod := range w.pods() {
		before[name] = pod
	}
	each(func(sort int, name string) {
		j, _ := jobOf(sort, name)
		j.SetNamespace(w.Namespace)
		w.Must(w.Client.Patch(t.Context(), j, client.RawPatch("application/merge-patch+json", []byte(sorts[sort].patch))))
	})
	o.Signal(syscall.SIGCONT)

	each(func(sort int, name string) { awaitPhase(sort, name, sorts[sort].want) })
	for name, pod := range w.pods() {
		if before[name] == nil || before[name].GetUID() != pod.UID {
			t.Errorf("pod %s runs again", name)
		}
	}
	if n := len(before); n != 2*len(sorts)*frozenRounds {
		t.Errorf("%d pods existed", n)
	}
}

// TestFailureWinsOverSimultaneousSuccess verifies that a success waits for failures that are reported late. A failure
// that happened at the same moment wins; a later one does not. Two replicas finish at known times. The operator is
// frozen after it has seen the success, and learns of the failure when it continues.
func TestFailureWinsOverSimultaneousSuccess(t *testing.T) {
	w := newWorld(t)
	o := startOperator(t, w.Env.Kubeconfig)
	for name, c := range map[string]struct {
		failsAfter time.Duration
		phase      batch.JobPhase
		reason     batch.Reason
	}{
		"same":  {0, batch.JobFailed, batch.ReasonFailureRule},
		"later": {3 * time.Second, batch.JobSucceeded, batch.ReasonSuccessRule},
	} {
		t.Run(name, func(t *testing.T) { w.in(t).failAfterSuccess(o, name, c.failsAfter, c.phase, c.reason) })
	}
}

// failAfterSuccess runs a job with a success that the operator sees late, so that the operator waits several seconds
// for failures. It then reports a failure that happened failsAfter after the success, and checks the end of the job.
// If the machine is too slow to report the failure within this time, the function tries again with another job.
func (w *world) failAfterSuccess(o *program.Program, name string, failsAfter time.Duration, phase batch.JobPhase, reason batch.Reason) {
	w.Helper()
	const tries = 10
	for i := range tries {
		j := jobs.New(fmt.Sprintf("%s-%d", name, i), jobs.Role("a", 1, kubelet.Run), jobs.Role("b", 1, kubelet.Run))
		j.Spec.SuccessRules, j.Spec.FailureRules = []batch.FinishRule{{"a": {}}}, []batch.FinishRule{{"b": {}}}
		w.Create(j)
		w.awaitPhase(j.Name, batch.JobRunning)
		ended := metav1.NewTime(time.Now().Add(-10 * time.Second).Truncate(time.Second))
		w.endAt(j.Name+"-a-0", 0, ended)
		w.Await("the status shows the success of the replica", func() error {
			j = w.job(j.Name)
			if p := jobs.Replica(j, j.Name+"-a-0").Phase; p != batch.ReplicaSucceeded {
				return fmt.Errorf("the replica is %s", p)
			}
			return nil
		})
		o.Freeze(w)
		if late := jobs.Over(w.job(j.Name)); !late {
			w.endAt(j.Name+"-b-0", 1, metav1.NewTime(ended.Add(failsAfter)))
			o.Signal(syscall.SIGCONT)
			end := w.awaitPhase(j.Name, phase)
			if c := jobs.Condition(end, conditionOf(phase)); c.Reason != reason {
				w.Errorf("the job is %s for reason %s, want %s", phase, c.Reason, reason)
			}
			return
		}
		o.Signal(syscall.SIGCONT)
	}
	w.Errorf("in none of %d tries did a job wait for failures after a success", tries)
}

// conditionOf returns the type of the condition that is True in a terminal phase.
func conditionOf(phase batch.JobPhase) batch.JobConditionType {
	if phase == batch.JobFailed {
		return batch.JobFailedCondition
	}
	return batch.JobCompleted
}

// endAt reports that a pod's container exited at the given time in the past.
func (w *world) endAt(pod string, code int32, at metav1.Time) {
	w.Helper()
	p := &corev1.Pod{}
	w.Must(w.Get(pod, p))
	w.Must(kubelet.EndAt(w.Context(), w.Core, p, code, at))
}
