package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// patience is how long a condition may take to come about; a busy machine is slow.
const patience = 90 * time.Second

// world is a namespace of its own on the shared plane.
type world struct {
	*testing.T
	*plane
	ns string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, plane: thePlane.get(t)}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	w.must(w.client.Create(t.Context(), ns))
	w.ns = ns.Name
	t.Cleanup(func() { // the next test's operator is not to find these jobs
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := w.client.DeleteAllOf(ctx, &batch.GenericJob{}, client.InNamespace(w.ns)); err != nil {
			t.Error(err)
		}
		if err := client.IgnoreNotFound(w.client.Delete(ctx, ns)); err != nil {
			t.Error(err)
		}
	})
	w.await("the namespace takes pods", func() error {
		return w.get("default", &corev1.ServiceAccount{})
	})
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// await waits until a condition holds, that is, until it returns nil.
func (w *world) await(what string, condition func() error) {
	w.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("waiting until %s: %v", what, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (w *world) get(name string, into client.Object) error {
	return w.client.Get(w.Context(), types.NamespacedName{Namespace: w.ns, Name: name}, into)
}

func (w *world) create(o client.Object) {
	w.Helper()
	o.SetNamespace(w.ns)
	w.must(w.client.Create(w.Context(), o))
}

// patch changes a job by a JSON merge patch.
func (w *world) patch(job, patch string) {
	w.Helper()
	o := &batch.GenericJob{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: job}}
	w.must(w.client.Patch(w.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// job reads a job.
func (w *world) job(name string) *batch.GenericJob {
	w.Helper()
	j := &batch.GenericJob{}
	w.must(w.get(name, j))
	return j
}

// awaitPhase waits until a job is in a phase and returns it.
func (w *world) awaitPhase(name string, phase batch.JobPhase) *batch.GenericJob {
	w.Helper()
	j := &batch.GenericJob{}
	w.await(fmt.Sprintf("job %s is %s", name, phase), func() error {
		if err := w.get(name, j); err != nil {
			return err
		}
		if j.Status.Phase != phase {
			return fmt.Errorf("it is %q: %s", j.Status.Phase, runningCondition(j).Message)
		}
		return nil
	})
	return j
}

// awaitReason waits until the Running condition of a job has a reason and returns the condition.
func (w *world) awaitReason(name string, reason batch.Reason) batch.JobCondition {
	w.Helper()
	var c batch.JobCondition
	w.await(fmt.Sprintf("job %s is held up by %s", name, reason), func() error {
		j := &batch.GenericJob{}
		if err := w.get(name, j); err != nil {
			return err
		}
		if c = runningCondition(j); c.Reason != reason {
			return fmt.Errorf("the reason is %q: %s", c.Reason, c.Message)
		}
		return nil
	})
	return c
}

func runningCondition(j *batch.GenericJob) batch.JobCondition {
	return conditionOf(j, batch.JobRunningCondition)
}

func conditionOf(j *batch.GenericJob, t batch.JobConditionType) batch.JobCondition {
	for _, c := range j.Status.Conditions {
		if c.Type == t {
			return c
		}
	}
	return batch.JobCondition{}
}

// pods lists the pods of the namespace by name.
func (w *world) pods() map[string]*corev1.Pod {
	w.Helper()
	list := &corev1.PodList{}
	w.must(w.client.List(w.Context(), list, client.InNamespace(w.ns)))
	pods := map[string]*corev1.Pod{}
	for i := range list.Items {
		pods[list.Items[i].Name] = &list.Items[i]
	}
	return pods
}

func (w *world) awaitNoPods() {
	w.Helper()
	w.await("no pods are left", func() error {
		if n := len(w.pods()); n > 0 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
}

// finish ends the container of a pod with an exit code.
func (w *world) finish(pod string, code int32) {
	w.Helper()
	w.await("pod "+pod+" has ended", func() error {
		p := &corev1.Pod{}
		if err := w.get(pod, p); err != nil {
			return err
		}
		if p.Status.Phase != corev1.PodRunning {
			return errors.New("it is " + string(p.Status.Phase))
		}
		return endPod(w.Context(), w.core, p, code)
	})
}

// settle returns when the operator has nothing more to do for what was there before: it handles a new job from its start to
// its end, which comes after that in every queue.
func (w *world) settle() {
	w.Helper()
	probe := newJob("settle-"+fmt.Sprint(time.Now().UnixNano()), role("w", 1, commandExit, "0"))
	w.create(probe)
	w.awaitPhase(probe.Name, batch.JobSucceeded)
	w.must(w.client.Delete(w.Context(), probe))
	w.await("the probe is gone", func() error {
		return gone(w.get(probe.Name+"-w-0", &corev1.Pod{}))
	})
}

// gone turns the error of a read into one unless it says that nothing is there.
func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return errors.Join(errors.New("it is there"), err)
}

// events lists the reasons and notes of the events about an object.
func (w *world) events(name string) []string {
	w.Helper()
	list, err := w.core.EventsV1().Events(w.ns).List(w.Context(), metav1.ListOptions{
		FieldSelector: "regarding.name=" + name})
	w.must(err)
	var all []string
	for _, e := range list.Items {
		all = append(all, e.Reason+": "+e.Note)
	}
	return all
}

func newJob(name string, roles ...batch.ReplicaSpec) *batch.GenericJob {
	return &batch.GenericJob{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batch.GenericJobSpec{ReplicaSpecs: roles}}
}

// role is a role whose pods do what command says; see kubelet.
func role(name string, replicas int32, command ...string) batch.ReplicaSpec {
	return batch.ReplicaSpec{Type: name, Replicas: &replicas, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "main", Image: "example.org/none", Command: command}}}}}
}

// restarting gives a role a restart policy.
func restarting(r batch.ReplicaSpec, policy batch.RestartPolicyType, limit int32) batch.ReplicaSpec {
	r.RestartPolicy = &batch.RestartPolicy{Policy: policy, Limit: &limit}
	return r
}
