package integration

import (
	"errors"
	"fmt"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/config"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
	"tensorstack.dev/batch/test/kit/namespace"
	"tensorstack.dev/batch/test/kit/plane"
)

// world is a namespace on a control plane that no other test uses at the same time.
type world struct {
	*namespace.Test
}

// newWorld borrows a control plane and lets the test run in parallel with others.
func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOn(t, planes.Lend(t))
}

// newSerialWorld does what newWorld does for a test that cannot run in parallel, because it sets environment
// variables of this process.
func newSerialWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOn(t, planes.LendSerial(t))
}

func newWorldOn(t *testing.T, p *plane.Plane) *world {
	t.Helper()
	w := &world{namespace.New(t, p)}
	t.Cleanup(func() { // the next test's operator must not find these jobs
		for _, k := range kinds.All {
			if err := w.Client.DeleteAllOf(w.AfterTest(), k.New().(client.Object), client.InNamespace(w.Namespace)); err != nil {
				t.Error(err)
			}
		}
	})
	// A new leader must not wait until the leases of earlier tests expire.
	for _, name := range []string{"t9k-operator", "t9k-scheduler"} {
		lease := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: config.Namespace, Name: name}}
		w.Must(client.IgnoreNotFound(w.Client.Delete(t.Context(), lease)))
	}
	w.AwaitServiceAccount()
	return w
}

// in returns the same world for a sub-test.
func (w *world) in(t *testing.T) *world { return &world{w.In(t)} }

// patch applies a JSON merge patch to a job.
func (w *world) patch(job, patch string) {
	w.Helper()
	o := &batch.GenericJob{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: job}}
	w.Must(w.Client.Patch(w.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// job reads a job.
func (w *world) job(name string) *batch.GenericJob {
	w.Helper()
	j := &batch.GenericJob{}
	w.Must(w.Get(name, j))
	return j
}

// awaitPhase waits until a job has the phase, and returns the job.
func (w *world) awaitPhase(name string, phase batch.JobPhase) *batch.GenericJob {
	w.Helper()
	j := &batch.GenericJob{}
	w.Await(fmt.Sprintf("job %s is %s", name, phase), func() error {
		if err := w.Get(name, j); err != nil {
			return err
		}
		if j.Status.Phase != phase {
			return fmt.Errorf("it is %q: %s", j.Status.Phase, jobs.Condition(j, batch.JobRunningCondition).Message)
		}
		return nil
	})
	return j
}

// awaitReason waits until the Running condition of a job has the reason, and returns the condition.
func (w *world) awaitReason(name string, reason batch.Reason) batch.JobCondition {
	w.Helper()
	var c batch.JobCondition
	w.Await(fmt.Sprintf("job %s does not run for the reason %s", name, reason), func() error {
		j := &batch.GenericJob{}
		if err := w.Get(name, j); err != nil {
			return err
		}
		if c = jobs.Condition(j, batch.JobRunningCondition); c.Reason != reason {
			return fmt.Errorf("the reason is %q: %s", c.Reason, c.Message)
		}
		return nil
	})
	return c
}

// pods returns the pods of the namespace by name.
func (w *world) pods() map[string]*corev1.Pod {
	w.Helper()
	all := w.Pods()
	pods := map[string]*corev1.Pod{}
	for i := range all {
		pods[all[i].Name] = &all[i]
	}
	return pods
}

func (w *world) awaitNoPods() {
	w.Helper()
	w.Await("no pods exist", func() error {
		if n := len(w.pods()); n > 0 {
			return fmt.Errorf("%d pods exist", n)
		}
		return nil
	})
}

// finish waits until a pod runs, and makes its container exit with a code.
func (w *world) finish(pod string, code int32) {
	w.Helper()
	w.Await("pod "+pod+" has ended", func() error {
		p := &corev1.Pod{}
		if err := w.Get(pod, p); err != nil {
			return err
		}
		if p.Status.Phase != corev1.PodRunning {
			return errors.New("it is " + string(p.Status.Phase))
		}
		return kubelet.End(w.Context(), w.Core, p, code)
	})
}

// settle returns when the operator has processed all earlier events. It runs a new job from its start to its end,
// because this job comes last in every work queue.
func (w *world) settle() {
	w.Helper()
	probe := jobs.New("settle-"+fmt.Sprint(time.Now().UnixNano()), jobs.Role("w", 1, kubelet.Exit, "0"))
	w.Create(probe)
	w.awaitPhase(probe.Name, batch.JobSucceeded)
	w.Must(w.Client.Delete(w.Context(), probe))
	w.Await("the probe no longer exists", func() error {
		return namespace.Gone(w.Get(probe.Name+"-w-0", &corev1.Pod{}))
	})
}

// events returns the events about an object, each as "REASON: NOTE".
func (w *world) events(name string) []string {
	w.Helper()
	list, err := w.Core.EventsV1().Events(w.Namespace).List(w.Context(), metav1.ListOptions{
		FieldSelector: "regarding.name=" + name})
	w.Must(err)
	var all []string
	for _, e := range list.Items {
		all = append(all, e.Reason+": "+e.Note)
	}
	return all
}
