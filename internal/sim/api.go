package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// fault is the fault of one call of an operator.
type fault int

const (
	// callWorks means that the call succeeds.
	callWorks fault = iota
	// callLost means that the call does not reach the API server.
	callLost
	// answerLost means that the API server executes the call and the operator gets an error.
	answerLost
	// diesBefore and diesAfter mean that the operator dies before the call reaches the API server, or before the answer
	// reaches the operator.
	diesBefore
	diesAfter
	// deposedByFresh and deposedByLate mean that a new leader makes a pass before the call reaches the API server. The
	// caches of the new leader have listed everything, or are as late as those of the old leader. The old leader does
	// not know that it was deposed, and finishes its pass.
	deposedByFresh
	deposedByLate
)

// connection is an operator's connection to the API server. Calls and answers may be lost, and the operator may die at
// any call.
type connection struct {
	w *world
	// fault returns the fault of the next call; nil means that no call has a fault.
	fault func() fault
	calls int
	// dead is true once the operator has died. None of its calls reaches the API server any more.
	dead bool
}

var errNetwork = errors.New("connection reset by peer")

// call executes a call with the faults of the connection.
func (c *connection) call(do func() error) error {
	if c.dead {
		return errNetwork
	}
	c.calls++
	happens := callWorks
	if c.fault != nil {
		happens = c.fault()
	}
	c.dead = happens == diesBefore || happens == diesAfter
	switch happens {
	case callLost, diesBefore:
		return errNetwork
	case answerLost, diesAfter:
		_ = do() // the operator does not get the result
		return errNetwork
	default:
		return do()
	}
}

// liveReader reads from the API server.
type liveReader struct {
	o *operator
}

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, batch.AddToScheme, scheduling.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}()

func notFound(resource, name string) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name)
}

func conflict(resource, name, format string, args ...any) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: resource}, name, fmt.Errorf(format, args...))
}

// object returns the object on the API server with this kind and name; nil if there is none.
func (w *world) object(kind, name string) client.Object {
	switch {
	case kind == w.kind.Name && w.obj != nil && name == w.obj.GetName():
		return w.obj
	case kind == "Pod" && w.pods[name] != nil:
		return w.pods[name]
	case kind != "Pod" && w.objects[kind] != nil && name == jobName:
		return w.objects[kind]
	}
	return nil
}

// Get reads the metadata of an object, or a node.
func (r liveReader) Get(_ context.Context, key client.ObjectKey, out client.Object, _ ...client.GetOption) error {
	w := r.o.w
	return r.o.call(func() error {
		switch out := out.(type) {
		case *corev1.Node:
			return w.readNode(key.Name, out)
		case *metav1.PartialObjectMetadata:
			have := w.object(out.Kind, key.Name)
			if have == nil {
				return notFound(out.Kind, key.Name)
			}
			copyMeta(have, out)
			return nil
		}
		return fmt.Errorf("the simulated API server does not read %T", out)
	})
}

// readNode reads a node. A lost node has been removed or is not ready.
func (w *world) readNode(name string, out *corev1.Node) error {
	ready := corev1.ConditionTrue
	if w.lost[name] {
		if w.creates%2 == 0 {
			return notFound("nodes", name)
		}
		ready = corev1.ConditionUnknown
	}
	out.Name = name
	out.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse}, {Type: corev1.NodeReady, Status: ready}}
	return nil
}

func copyMeta(from client.Object, to *metav1.PartialObjectMetadata) {
	to.Namespace, to.Name, to.UID, to.ResourceVersion = from.GetNamespace(), from.GetName(), from.GetUID(), from.GetResourceVersion()
	to.Labels, to.OwnerReferences, to.DeletionTimestamp = from.GetLabels(), from.GetOwnerReferences(), from.GetDeletionTimestamp()
}

// List lists pods or warnings about pods. For jobs, it returns only the resourceVersion of the list.
func (r liveReader) List(_ context.Context, out client.ObjectList, opts ...client.ListOption) error {
	w := r.o.w
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	read := map[string]*corev1.Pod{}
	err := r.o.call(func() error {
		out.SetResourceVersion(strconv.Itoa(w.version))
		switch out := out.(type) {
		case *metav1.PartialObjectMetadataList:
		case *corev1.PodList:
			for _, name := range sortedKeys(w.pods) {
				if pod := w.pods[name]; o.LabelSelector.Matches(labels.Set(pod.Labels)) {
					pod = pod.DeepCopy()
					read[name] = pod
					out.Items = append(out.Items, *pod)
				}
			}
		case *corev1.EventList:
			if w.creates%2 == 0 {
				out.Items = append(out.Items, corev1.Event{Message: "the volume is not there", LastTimestamp: stamp(w.now)})
			}
		default:
			return fmt.Errorf("the simulated API server does not list %T", out)
		}
		return nil
	})
	if _, pods := out.(*corev1.PodList); pods && err == nil {
		r.o.live, r.o.liveVersion, r.o.liveAt = read, w.version, w.now
	}
	return err
}

// apiClient reads from the caches of an operator and writes to the API server. Methods that the operator does not use
// panic.
type apiClient struct {
	client.Client
	o *operator
}

func (c apiClient) GroupVersionKindFor(o runtime.Object) (schema.GroupVersionKind, error) {
	gvks, _, err := scheme.ObjectKinds(o)
	if err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("finding the kind of %T: %w", o, err)
	}
	return gvks[0], nil
}

func (c apiClient) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	w := c.o.w
	return c.o.call(func() error {
		if w.refuses && !w.chance(20) {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, o.GetName(), errors.New("exceeded quota"))
		}
		if pod, ok := o.(*corev1.Pod); ok {
			c.o.forgetUnseen(pod.Name)
			return w.createPod(pod, c.o.deposed)
		}
		return w.createObject(o)
	})
}

// maxCreationLag is how late a cache may show a new pod. After that time, an operator forgets a pod that it created
// and that no longer exists, because the pod may have been deleted before the cache could show it.
const maxCreationLag = 10 * time.Second

// forgetUnseen marks the end of the last pod with a name as ambiguous if the operator's cache still lacks the pod
// maxCreationLag after its creation. The operator may then never have observed that end.
func (o *operator) forgetUnseen(name string) {
	if t := o.w.last(name); t.watched && o.podPos[name] <= t.creation && o.w.now.Sub(t.created) > maxCreationLag {
		t.ambiguous = true
	}
}

// kindOf returns the kind of an object.
func kindOf(o client.Object) string {
	gvks, _, err := scheme.ObjectKinds(o)
	if err != nil {
		panic(err)
	}
	return gvks[0].Kind
}

func (w *world) createObject(o client.Object) error {
	kind := kindOf(o)
	if w.objects[kind] != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: kind}, o.GetName())
	}
	o.SetUID(w.newUID())
	w.objectChanged(kind, o)
	return nil
}

// objectChanged stores the next version of the job's Service or PodGroup.
func (w *world) objectChanged(kind string, o client.Object) {
	w.version++
	o.SetResourceVersion(strconv.Itoa(w.version))
	w.tracef("%s v%d", kind, w.version)
	w.objects[kind] = o.DeepCopyObject().(client.Object)
	w.objectLog[kind] = append(w.objectLog[kind], w.objects[kind])
}

func (c apiClient) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	w := c.o.w
	return c.o.call(func() error {
		kind := kindOf(o)
		switch have := w.objects[kind]; {
		case have == nil:
			return notFound(kind, o.GetName())
		case have.GetResourceVersion() != o.GetResourceVersion():
			return conflict(kind, o.GetName(), "the object has been modified")
		}
		w.objectChanged(kind, o)
		return nil
	})
}

func (c apiClient) Delete(_ context.Context, o client.Object, opts ...client.DeleteOption) error {
	d := client.DeleteOptions{}
	d.ApplyOptions(opts)
	return c.o.call(func() error {
		if pod, ok := o.(*corev1.Pod); ok {
			return c.o.deletePod(pod.Name, &d)
		}
		return c.o.w.deleteJob(o.GetName(), &d)
	})
}

// checkPreconditions checks an object against the preconditions of a deletion.
func checkPreconditions(have client.Object, p *metav1.Preconditions) error {
	switch {
	case p == nil:
	case p.UID != nil && *p.UID != have.GetUID():
		return conflict("objects", have.GetName(), "the UID in the precondition does not match")
	case p.ResourceVersion != nil && *p.ResourceVersion != have.GetResourceVersion():
		return conflict("objects", have.GetName(), "the resourceVersion in the precondition does not match")
	}
	return nil
}

func (c apiClient) Patch(_ context.Context, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
	w := c.o.w
	data, err := patch.Data(o)
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	return c.o.call(func() error {
		have := w.pods[o.GetName()]
		if have == nil {
			return notFound("pods", o.GetName())
		}
		next := have.DeepCopy()
		if err := json.Unmarshal(data, next); err != nil { // merges, as long as the patch removes nothing
			return fmt.Errorf("decoding a patch: %w", err)
		}
		if next.UID != have.UID {
			return conflict("pods", have.Name, "the UID does not match")
		}
		if next.Spec.ActiveDeadlineSeconds != nil && !decided(have) {
			w.fail("pod %s is stopped before its replica has ended", have.Name)
		}
		have.Labels, have.Spec.ActiveDeadlineSeconds = next.Labels, next.Spec.ActiveDeadlineSeconds
		w.podChanged(have.Name)
		return nil
	})
}

// deletePod executes an operator's deletion of a pod.
func (o *operator) deletePod(name string, d *client.DeleteOptions) error {
	w := o.w
	pod, seen := w.pods[name], o.seen(name)
	if seen != nil && (d.Preconditions == nil || d.Preconditions.UID == nil || *d.Preconditions.UID == seen.UID) {
		o.checkDelete(seen, w.status)
	}
	if pod == nil {
		return notFound("pods", name)
	}
	if err := checkPreconditions(pod, d.Preconditions); err != nil {
		return err
	}
	if decided(pod) && pod.DeletionTimestamp == nil && (seen == nil || !decided(seen)) {
		w.fail("pod %s has ended, and is deleted as if it ran", name)
	}
	if _, unreported := w.reports[name]; unreported {
		w.last(name).ambiguous = true
	}
	if d.GracePeriodSeconds != nil && *d.GracePeriodSeconds == 0 {
		if !w.lost[pod.Spec.NodeName] {
			w.fail("pod %s deleted by force on a healthy node", name)
		}
		w.remove(name)
		return nil
	}
	w.askDeletion(pod)
	return nil
}

// deleteJob executes an operator's deletion of the job.
func (w *world) deleteJob(name string, d *client.DeleteOptions) error {
	if w.obj == nil || name != jobName {
		return notFound(w.kind.Plural, name)
	}
	if err := checkPreconditions(w.obj, d.Preconditions); err != nil {
		return err
	}
	if ttl := w.job.TTL; ttl == nil || !finished(w.status) || w.now.Sub(w.status.CompletionTime.Time) < *ttl {
		w.fail("the job is deleted before its time")
	}
	w.removeJob()
	return nil
}

// removeJob removes the job. The garbage collector deletes its pods.
func (w *world) removeJob() {
	w.tracef("the job is deleted")
	w.obj = nil
	w.jobLog = append(w.jobLog, nil)
	for _, name := range sortedKeys(w.pods) {
		w.askDeletion(w.pods[name])
	}
	w.inc.disturbed = w.now
}

// worldClock is the clock of a world.
type worldClock struct{ w *world }

func (c worldClock) Now() time.Time                  { return c.w.now }
func (c worldClock) Since(t time.Time) time.Duration { return c.w.now.Sub(t) }
