// Package namespace gives each test a separate namespace on a control plane, with the calls that most tests need. It
// does not depend on particular tests or components: the test packages extend Test. Start reading at New.
package namespace

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/test/kit/await"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/plane"
	"tensorstack.dev/batch/test/kit/watch"
)

// Test is a test that has a namespace on a control plane.
type Test struct {
	*testing.T
	*plane.Plane
	// Namespace is the name of the namespace.
	Namespace string
}

// New creates a namespace whose name begins with the name of the test. The namespace is deleted when the test ends; the
// test does not wait for that.
func New(t *testing.T, p *plane.Plane) *Test {
	t.Helper()
	s := &Test{T: t, Plane: p}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix(t.Name())}}
	s.Must(p.Client.Create(t.Context(), ns))
	s.Namespace = ns.Name
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(p.Client.Delete(s.AfterTest(), ns)); err != nil {
			t.Log("deleting the namespace: ", err)
		}
	})
	return s
}

// prefix returns the beginning of a namespace's name for the test with this name.
func prefix(test string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(test))
	return name[:min(len(name), 40)] + "-"
}

// In returns a Test with the same namespace for a sub-test.
func (s *Test) In(t *testing.T) *Test { return &Test{T: t, Plane: s.Plane, Namespace: s.Namespace} }

// Beside returns a Test for the same test with another namespace, which is empty for cluster-scoped objects.
func (s *Test) Beside(namespace string) *Test {
	return &Test{T: s.T, Plane: s.Plane, Namespace: namespace}
}

// AfterTest returns a context for clean-up functions, which does not end with the test.
func (s *Test) AfterTest() context.Context { return context.WithoutCancel(s.Context()) }

// Must fails the test at once if err is not nil.
func (s *Test) Must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// Await waits until check returns nil, as await.Until does. A failure message also contains the state of the namespace.
func (s *Test) Await(what string, check func() error) {
	s.Helper()
	if err := await.Try(what, check); err != nil {
		s.Fatalf("%v\n%s", err, s.Dump())
	}
}

// AwaitServiceAccount waits until the namespace has the objects that pods need: the default service account and the
// root certificate. The control plane must have a controller manager.
func (s *Test) AwaitServiceAccount() {
	s.Helper()
	s.Await("the namespace has its service account and root certificate", func() error {
		return errors.Join(s.Get("default", &corev1.ServiceAccount{}), s.Get("kube-root-ca.crt", &corev1.ConfigMap{}))
	})
}

// Get reads the object with the name in the test's namespace.
func (s *Test) Get(name string, into client.Object) error {
	return s.Client.Get(s.Context(), types.NamespacedName{Namespace: s.Namespace, Name: name}, into)
}

// Create creates an object in the test's namespace.
func (s *Test) Create(o client.Object) {
	s.Helper()
	o.SetNamespace(s.Namespace)
	s.Must(s.Client.Create(s.Context(), o))
}

// TryUpdate reads an object, sends the change as a patch, and returns the error, if any. It keeps concurrent changes of
// other clients.
func (s *Test) TryUpdate(o client.Object, change func()) error {
	if err := s.Client.Get(s.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		return err
	}
	before := o.DeepCopyObject().(client.Object)
	change()
	return s.Client.Patch(s.Context(), o, client.MergeFrom(before))
}

// Update changes an object that other clients may change too: it reads the object, changes it and sends the whole
// object. If another client has changed the object in the meantime, it tries again.
func (s *Test) Update(o client.Object, change func()) {
	s.Helper()
	s.Must(s.updateWith(o, change, func() error { return s.Client.Update(s.Context(), o) }))
}

// UpdateStatus does what Update does, for the status of an object.
func (s *Test) UpdateStatus(o client.Object, change func()) {
	s.Helper()
	s.Must(s.updateWith(o, change, func() error { return s.Client.Status().Update(s.Context(), o) }))
}

func (s *Test) updateWith(o client.Object, change func(), send func() error) error {
	return retry.RetryOnConflict(conflicts, func() error {
		if err := s.Client.Get(s.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		change()
		return send()
	})
}

// conflicts limits the attempts of a write that fails because of conflicts.
var conflicts = wait.Backoff{Steps: 200, Duration: 10 * time.Millisecond, Jitter: 1}

// Watch calls see as watch.Objects does, with the objects of a list in the test's namespace, until see returns true or
// the test ends. Watch returns after the first call of see, so the later calls show every change that the test makes
// afterwards.
func (s *Test) Watch(list client.ObjectList, see func([]client.Object) bool, opts ...client.ListOption) {
	s.Helper()
	first, ended := make(chan struct{}), make(chan struct{})
	called := sync.OnceFunc(func() { close(first) })
	go func() {
		defer close(ended)
		// Objects returns when the context of the test ends, which is before the clean-up functions are called.
		_ = watch.Objects(s.Context(), s.Client, list, func(objects []client.Object) bool {
			defer called()
			return see(objects)
		}, append([]client.ListOption{client.InNamespace(s.Namespace)}, opts...)...)
	}()
	s.Cleanup(func() { <-ended })
	select {
	case <-first:
	case <-time.After(await.Patience):
		s.Fatalf("waited %s for the first list of a watch (%T)", await.Patience, list)
	}
}

// AwaitList waits until cond holds for the objects of a list in the test's namespace, and returns the objects. It
// watches them, so it sees every version. After await.Patience, the test fails with the state of the namespace.
func AwaitList[T client.Object](s *Test, what string, list client.ObjectList, cond func([]T) bool, opts ...client.ListOption) []T {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), await.Patience)
	defer cancel()
	var got []T
	done := false
	err := watch.Objects(ctx, s.Client, list, func(objects []client.Object) bool {
		got = watch.Typed[T](objects)
		done = cond(got)
		return done
	}, append([]client.ListOption{client.InNamespace(s.Namespace)}, opts...)...)
	if !done {
		s.Fatalf("waited %s until %s (%v)\n%s", await.Patience, what, err, s.Dump())
	}
	return got
}

// Pods returns the pods of the namespace that the options select, sorted by name.
func (s *Test) Pods(opts ...client.ListOption) []corev1.Pod {
	s.Helper()
	var list corev1.PodList
	s.Must(s.Client.List(s.Context(), &list, append([]client.ListOption{client.InNamespace(s.Namespace)}, opts...)...))
	return list.Items
}

// Events returns all events of the namespace.
func (s *Test) Events() []*eventsv1.Event {
	s.Helper()
	var list eventsv1.EventList
	s.Must(s.Client.List(s.Context(), &list, client.InNamespace(s.Namespace)))
	out := make([]*eventsv1.Event, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out
}

// Jobs reads the jobs of all kinds in the namespace.
func (s *Test) Jobs(ctx context.Context) ([]client.Object, error) {
	var all []client.Object
	for _, k := range kinds.All {
		list := jobs.ListOf(k)
		if err := s.Client.List(ctx, list, client.InNamespace(s.Namespace)); err != nil {
			return all, err
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			all = append(all, o.(client.Object))
			return nil
		}); err != nil {
			return all, err
		}
	}
	return all, nil
}

// Dump describes the jobs, pods and events of the namespace for a failure message.
func (s *Test) Dump() string {
	var b strings.Builder
	ctx := s.AfterTest()
	in := client.InNamespace(s.Namespace)
	var pods corev1.PodList
	var events eventsv1.EventList
	for _, list := range []client.ObjectList{&pods, &events} {
		if err := s.Client.List(ctx, list, in); err != nil {
			fmt.Fprintln(&b, err)
		}
	}
	all, err := s.Jobs(ctx)
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	for _, j := range all {
		text, _ := yaml.Marshal(jobs.StatusOf(j)) // plain data can always be encoded as YAML
		fmt.Fprintf(&b, "--- job %s\n%s", j.GetName(), text)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		text, _ := yaml.Marshal(p.Status.ContainerStatuses)
		fmt.Fprintf(&b, "--- pod %s: %s on %q, %s, deletion asked for: %v\n%s", p.Name, p.Status.Phase, p.Spec.NodeName, p.Status.Reason, p.DeletionTimestamp, text)
	}
	for i := range events.Items {
		e := &events.Items[i]
		fmt.Fprintf(&b, "--- event %s about %s: %s\n", e.Reason, e.Regarding.Name, e.Note)
	}
	return b.String()
}

// Gone returns nil if err, the result of a read, says that there is no such object. Otherwise it returns an error.
func Gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return errors.Join(errors.New("the object still exists"), err)
}
