package integration

import (
	"fmt"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
)

// frozenRounds is the number of jobs of each sort in TestEndsDuringAFreezeComeBeforeLaterChanges.
const frozenRounds = 6

// TestEndsDuringAFreezeComeBeforeLaterChanges verifies the order of events that the operator missed. While it is
// stopped, pods end, and then the job is paused or switched to debug mode, or its deadline passes. When the operator
// continues, it learns of both at once and in any order. Ends of pods remain ends.
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

	o.Signal(syscall.SIGSTOP)
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
