package integration

import (
	"fmt"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// frozenRounds is how many jobs of each sort TestFrozenOperator has.
const frozenRounds = 6

// TestFrozenOperator: while the operator sleeps pods end, and then somebody pauses the job or turns it into a debug run, or its
// deadline passes. When the operator wakes up it hears of both at once, in any order. What had ended has ended.
func TestFrozenOperator(t *testing.T) {
	w := newWorld(t)
	o := startOperator(t, w.env.Kubeconfig)
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
			w.must(yaml.Unmarshal([]byte(`spec: {replicaSpecs: [{type: w, replicas: 2, template: {spec: {containers: [{name: pytorch, image: none, command: [run]}]}}}]}`), j))
			j.Name = name
			return j, func() batch.JobStatus { return j.Status.JobStatus }
		}
		j := newJob(name, role("w", 2, commandRun))
		return j, func() batch.JobStatus { return j.Status.JobStatus }
	}
	awaitPhase := func(sort int, name string, want batch.JobPhase) {
		w.Helper()
		w.await(name+" is "+string(want), func() error {
			j, status := jobOf(sort, name)
			w.must(w.get(name, j))
			if s := status(); s.Phase != want {
				return fmt.Errorf("it is %s: %+v", s.Phase, s.Conditions)
			}
			return nil
		})
	}
	each(func(sort int, name string) { j, _ := jobOf(sort, name); w.create(j) })
	each(func(sort int, name string) { awaitPhase(sort, name, batch.JobRunning) })

	o.signal(syscall.SIGSTOP)
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
		j.SetNamespace(w.ns)
		w.must(w.client.Patch(t.Context(), j, client.RawPatch("application/merge-patch+json", []byte(sorts[sort].patch))))
	})
	o.signal(syscall.SIGCONT)

	each(func(sort int, name string) { awaitPhase(sort, name, sorts[sort].want) })
	for name, pod := range w.pods() {
		if before[name] == nil || before[name].GetUID() != pod.UID {
			t.Errorf("pod %s runs again", name)
		}
	}
	if n := len(before); n != 2*len(sorts)*frozenRounds {
		t.Errorf("%d pods were there", n)
	}
}
