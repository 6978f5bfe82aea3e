package queue

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

func testScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, scheduling.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// storeCache is a cache of an in-memory API server. Its List works only for pods, and returns trimmed copies of those
// that ours selects.
type storeCache struct {
	cache.Cache
	client client.Client
	ours   func(*corev1.Pod) bool
}

func (c storeCache) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return c.client.Get(ctx, key, o, opts...)
}

func (c storeCache) List(ctx context.Context, out client.ObjectList, opts ...client.ListOption) error {
	if err := c.client.List(ctx, out, opts...); err != nil {
		return err
	}
	list := out.(*corev1.PodList)
	kept := list.Items[:0]
	for _, pod := range list.Items {
		if c.ours(&pod) {
			small, err := trim(&pod)
			if err != nil {
				return err
			}
			kept = append(kept, *small.(*corev1.Pod))
		}
	}
	list.Items = kept
	return nil
}

// newReconciler returns a reconciler over an API server in memory.
func newReconciler(t *testing.T, objects ...client.Object) *reconciler {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(objects...).
		WithStatusSubresource(&scheduling.Queue{}, &scheduling.PodGroup{}, &corev1.Pod{}).
		WithIndex(&corev1.Pod{}, byGroup, func(o client.Object) []string { return []string{o.GetLabels()[scheduling.LabelGroupName]} }).
		WithIndex(&corev1.Pod{}, byQueue, func(o client.Object) []string { return []string{queueOf(o)} }).
		WithIndex(&scheduling.PodGroup{}, byQueue, func(o client.Object) []string { return []string{o.(*scheduling.PodGroup).Spec.Queue} }).
		Build()
	ours := func(p *corev1.Pod) bool { return p.Spec.SchedulerName == scheduling.SchedulerName }
	store := storeCache{client: c, ours: ours}
	return &reconciler{client: c, pods: store, foreignPods: storeCache{client: c, ours: func(p *corev1.Pod) bool { return !ours(p) }},
		shapes: &Shapes{objects: c, profiles: store}}
}

func queueNamed(name string, spec scheduling.QueueSpec) *scheduling.Queue {
	return &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

func groupIn(name, queue string) *scheduling.PodGroup {
	return &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: scheduling.PodGroupSpec{Queue: queue, MinMember: 2}}
}

// podNamed returns a running pod of the t9k-scheduler that requests one CPU; its labels are given in pairs.
func podNamed(name string, age time.Duration, labels ...string) *corev1.Pod {
	pod := member("node", corev1.PodRunning, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")})
	pod.Namespace, pod.Name, pod.UID = "ns", name, "uid"
	pod.CreationTimestamp, pod.Spec.SchedulerName, pod.Labels = metav1.NewTime(time.Now().Add(-age)), scheduling.SchedulerName, map[string]string{}
	for i := 0; i < len(labels); i += 2 {
		pod.Labels[labels[i]] = labels[i+1]
	}
	return &pod
}

func named(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}
}

func TestStatusOfAGroupIsWritten(t *testing.T) {
	k := newReconciler(t, groupIn("g", "q"), podNamed("a", 0, scheduling.LabelGroupName, "g"), podNamed("b", 0, scheduling.LabelGroupName, "g"),
		podNamed("c", 0, scheduling.LabelGroupName, "other"))
	req := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "g"}}
	g := &scheduling.PodGroup{}
	for range 2 { // the second pass must write nothing, because nothing has changed
		if _, err := k.group(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		version := g.ResourceVersion
		if err := k.client.Get(t.Context(), req.NamespacedName, g); err != nil {
			t.Fatal(err)
		}
		if g.Status.Running != 2 || g.Status.Allocated.Cpu().String() != "2" || version != "" && version != g.ResourceVersion {
			t.Errorf("version %s after %s, status %+v", g.ResourceVersion, version, g.Status)
		}
	}
	req.Name = "gone"
	if _, err := k.group(t.Context(), req); err != nil {
		t.Error(err)
	}
}

// TestStatusOfAQueueCountsItsPods verifies which pods belong to a queue: the pods of its groups, whatever queue they
// name, and the pods that name the queue and have no group elsewhere.
func TestStatusOfAQueueCountsItsPods(t *testing.T) {
	foreign := podNamed("foreign", 0, scheduling.LabelQueue, "q")
	foreign.Spec.SchedulerName = "another"
	k := newReconciler(t, queueNamed("q", scheduling.QueueSpec{}), groupIn("g", "q"), groupIn("far", "r"),
		podNamed("of-group", 0, scheduling.LabelGroupName, "g"),
		podNamed("by-name", 0, scheduling.LabelQueue, "q"),
		podNamed("without-group", 0, scheduling.LabelQueue, "q", scheduling.LabelGroupName, "gone"),
		podNamed("of-another", 0, scheduling.LabelQueue, "q", scheduling.LabelGroupName, "far"),
		podNamed("of-default", 0), foreign)
	if _, err := k.queue(t.Context(), named("q")); err != nil {
		t.Fatal(err)
	}
	q := &scheduling.Queue{}
	if err := k.client.Get(t.Context(), client.ObjectKey{Name: "q"}, q); err != nil {
		t.Fatal(err)
	}
	// The requests of the foreign pod count, but the pod does not.
	if got := q.Status.Allocated.Cpu().String(); got != "4" || q.Status.Pods.Running != 3 {
		t.Errorf("allocated %s, want 4: %+v", got, q.Status)
	}
	if _, err := k.queue(t.Context(), named("gone")); err != nil {
		t.Error(err)
	}
	if got := k.queuesOf(t.Context(), podNamed("x", 0, scheduling.LabelQueue, "q", scheduling.LabelGroupName, "far")); len(got) != 2 || got[1].Name != "r" {
		t.Errorf("a pod triggers %v", got)
	}
}

// TestPodsThatAreTooOldAreDeleted verifies that a pod that is too old first gets the condition DisruptionTarget, and is
// deleted once notice has passed.
func TestPodsThatAreTooOldAreDeleted(t *testing.T) {
	q := queueNamed("q", scheduling.QueueSpec{MaxDuration: "1h"})
	ended := podNamed("ended", 2*time.Hour, scheduling.LabelQueue, "q")
	ended.Status.Phase = corev1.PodSucceeded
	k := newReconciler(t, q, ended, podNamed("old", 2*time.Hour, scheduling.LabelQueue, "q"), podNamed("young", time.Minute, scheduling.LabelQueue, "q"))
	result, err := k.queue(t.Context(), named("q"))
	if err != nil || result.RequeueAfter != notice {
		t.Fatalf("back after %s, %v", result.RequeueAfter, err)
	}
	old := &corev1.Pod{}
	if err := k.client.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "old"}, old); err != nil {
		t.Fatal(err)
	}
	mark := expiryCondition(old)
	if mark == nil || !strings.Contains(mark.Message, "older than the 1h that queue q allows") {
		t.Fatalf("conditions %+v", old.Status.Conditions)
	}
	past := time.Now().Add(-time.Minute)
	k.began.Store(&past)
	old.Status.Conditions[0].LastTransitionTime = metav1.NewTime(past)
	if err := k.client.Status().Update(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if result, err = k.queue(t.Context(), named("q")); err != nil || result.RequeueAfter < 58*time.Minute {
		t.Errorf("back after %s, %v", result.RequeueAfter, err)
	}
	if err := k.client.Get(t.Context(), client.ObjectKeyFromObject(old), old); !apierrors.IsNotFound(err) {
		t.Errorf("the old pod still exists: %v", err)
	}
}

func TestShapesOfQueuesAndPods(t *testing.T) {
	profiles := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: scheduling.ResourceShapesNamespace, Name: scheduling.ResourceShapes},
		Data: map[string]string{"small": "cpu: 1", "bad": "cpu: many"}}
	small, bad, none := scheduling.QueueSpec{ResourceShapeProfile: "small"}, scheduling.QueueSpec{ResourceShapeProfile: "bad"}, scheduling.QueueSpec{ResourceShapeProfile: "none"}
	k := newReconciler(t, profiles, queueNamed("q", small), queueNamed("b", bad), queueNamed("n", none), queueNamed("free", scheduling.QueueSpec{}),
		groupIn("g", "q"), queueNamed(scheduling.DefaultQueue, none))
	for name, test := range map[string]struct {
		labels map[string]string
		reason string // empty if there is no shape
	}{
		"by its queue":              {map[string]string{scheduling.LabelQueue: "q"}, scheduling.ReasonShapeFound},
		"by its group":              {map[string]string{scheduling.LabelQueue: "free", scheduling.LabelGroupName: "g"}, scheduling.ReasonShapeFound},
		"a group yet to come":       {map[string]string{scheduling.LabelGroupName: "later"}, ""},
		"a profile that is wrong":   {map[string]string{scheduling.LabelQueue: "b"}, scheduling.ReasonShapeInvalid},
		"the default queue":         {nil, scheduling.ReasonShapeNotFound},
		"a queue without a profile": {map[string]string{scheduling.LabelQueue: "free"}, ""},
		"a queue that is not there": {map[string]string{scheduling.LabelQueue: "gone"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			shape, err := k.shapes.OfPod(t.Context(), "ns", test.labels)
			if err != nil {
				t.Fatal(err)
			}
			if (shape == nil) != (test.reason == "") || shape != nil && shape.Reason != test.reason {
				t.Errorf("shape %+v, want %q", shape, test.reason)
			}
		})
	}
	if got := k.queuesWithProfile(t.Context(), profiles); len(got) != 4 {
		t.Errorf("a change of the profiles triggers %v", got)
	}
	for _, name := range []string{"q", "b"} { // the state of the profile is part of the status
		if _, err := k.queue(t.Context(), named(name)); err != nil {
			t.Fatal(err)
		}
		q := &scheduling.Queue{}
		if err := k.client.Get(t.Context(), client.ObjectKey{Name: name}, q); err != nil {
			t.Fatal(err)
		}
		if len(q.Status.Conditions) == 0 {
			t.Errorf("queue %s does not report its profile", name)
		}
	}
}

// added records the names of the items that are added to a work queue.
type added struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	names []string
}

func (a *added) AddAfter(r reconcile.Request, _ time.Duration) { a.names = append(a.names, r.Name) }

// TestChangesTriggerBothQueues verifies that the creation and the deletion of a pod trigger its queue, and that a
// change of the pod's queue triggers the old and the new one.
func TestChangesTriggerBothQueues(t *testing.T) {
	h := later(func(_ context.Context, o client.Object) []client.ObjectKey {
		return []client.ObjectKey{{Name: queueOf(o)}}
	})
	a, b, to := podNamed("p", 0, scheduling.LabelQueue, "a"), podNamed("p", 0, scheduling.LabelQueue, "b"), &added{}
	h.Create(t.Context(), event.CreateEvent{Object: a}, to)
	h.Update(t.Context(), event.UpdateEvent{ObjectOld: a, ObjectNew: b}, to)
	h.Delete(t.Context(), event.DeleteEvent{Object: b}, to)
	if got := strings.Join(to.names, ","); got != "a,a,b,b" {
		t.Errorf("changes trigger %s", got)
	}
}

// TestControllersAreAddedToAManager verifies that the controllers can be added to a manager. The manager is not
// started, so the test needs no API server.
func TestControllersAreAddedToAManager(t *testing.T) {
	mgr, err := ctrl.NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, ctrl.Options{Scheme: testScheme(t), Metrics: metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0", MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			mapper := meta.NewDefaultRESTMapper(nil)
			mapper.Add(scheduling.GroupVersion.WithKind("Queue"), meta.RESTScopeRoot)
			mapper.Add(scheduling.GroupVersion.WithKind("PodGroup"), meta.RESTScopeNamespace)
			mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
			mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
			return mapper, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	shapes, err := NewShapes(mgr)
	if err != nil {
		t.Fatal(err)
	}
	if (everywhere{shapes.profiles}).NeedLeaderElection() {
		t.Error("only the leader reads the profiles")
	}
	if err := shapes.Watch(t.Context()); err != nil {
		t.Error(err)
	}
	if err := Add(t.Context(), mgr, shapes, nil); err != nil {
		t.Error(err)
	}
}
