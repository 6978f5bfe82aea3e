package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/testenv"
)

// stage is an API server with the scheduler and nodes that exist on paper only: pods are bound and never run.
type stage struct {
	*testing.T
	env    *testenv.Env
	client client.Client
	core   kubernetes.Interface
}

func newStage(t *testing.T, args ...string) *stage {
	t.Helper()
	return newStageOf(t, testenv.Options{Components: []string{local.Etcd, local.APIServer, local.CRDs, local.Scheduler},
		Args: map[string][]string{local.Scheduler: args}})
}

func newStageOf(t *testing.T, o testenv.Options) *stage {
	t.Helper()
	env := testenv.Start(t, o)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, batch.AddToScheme, scheduling.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(env.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	core, err := kubernetes.NewForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	return &stage{T: t, env: env, client: c, core: core}
}

func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// node adds a node with that many CPUs.
func (s *stage) node(name string, cpu int, labels map[string]string) {
	s.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	s.must(s.client.Create(s.Context(), n))
	n.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(cpu), resource.DecimalSI),
		corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("110")}
	n.Status.Allocatable = n.Status.Capacity
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Test"}}
	s.must(s.client.Status().Update(s.Context(), n))
	n.Spec.Taints = nil // admission taints what is not ready when it is created
	s.must(s.client.Update(s.Context(), n))
}

func (s *stage) queue(name string, cpu string, priority int32) *scheduling.Queue {
	s.Helper()
	q := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: scheduling.QueueSpec{Priority: priority, NamespaceSelector: &metav1.LabelSelector{}}}
	if cpu != "" {
		q.Spec.Quota.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
	s.must(s.client.Create(s.Context(), q))
	return q
}

// group adds a PodGroup with n pods that all must start together.
func (s *stage) group(name, queue string, n int, cpu string, change ...func(*corev1.Pod)) {
	s.Helper()
	s.must(s.client.Create(s.Context(), &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: scheduling.PodGroupSpec{MinMember: int32(n), Queue: queue}}))
	for i := range n {
		s.pod(fmt.Sprintf("%s-%d", name, i), cpu, append([]func(*corev1.Pod){func(p *corev1.Pod) {
			p.Labels = map[string]string{scheduling.LabelGroupName: name, scheduling.LabelQueue: queue}
		}}, change...)...)
	}
}

func (s *stage) pod(name, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
	s.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PodSpec{SchedulerName: scheduling.SchedulerName, Containers: []corev1.Container{{Name: "main", Image: "none",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}}}}
	for _, c := range change {
		c(p)
	}
	s.must(s.client.Create(s.Context(), p))
	return p
}

// pods lists the pods of a group.
func (s *stage) pods(group string) []corev1.Pod {
	s.Helper()
	list := &corev1.PodList{}
	s.must(s.client.List(s.Context(), list, client.InNamespace("default"), client.MatchingLabels{scheduling.LabelGroupName: group}))
	return list.Items
}

// all lists all pods.
func (s *stage) all() []corev1.Pod {
	s.Helper()
	list := &corev1.PodList{}
	s.must(s.client.List(s.Context(), list, client.InNamespace("default")))
	return list.Items
}

func (s *stage) bound(group string) int {
	s.Helper()
	n := 0
	for _, p := range s.pods(group) {
		if p.Spec.NodeName != "" && p.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

// end removes the pods of a group, and the group.
func (s *stage) end(group string) {
	s.Helper()
	now := client.GracePeriodSeconds(0)
	for _, p := range s.pods(group) {
		s.must(client.IgnoreNotFound(s.client.Delete(s.Context(), &p, now)))
	}
	s.must(s.client.Delete(s.Context(), &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: group, Namespace: "default"}}))
}

func (s *stage) await(what string, check func() error) {
	s.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("%s: %v", what, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (s *stage) awaitBound(group string, n int) {
	s.Helper()
	s.await(fmt.Sprintf("%d pods of %s are bound", n, group), func() error {
		if got := s.bound(group); got != n {
			return fmt.Errorf("%d are; it is said: %+v", got, s.condition(group))
		}
		return nil
	})
}

func (s *stage) condition(group string) scheduling.PodGroupCondition {
	pg := &scheduling.PodGroup{}
	if err := s.client.Get(s.Context(), client.ObjectKey{Namespace: "default", Name: group}, pg); err != nil {
		return scheduling.PodGroupCondition{Message: err.Error()}
	}
	for _, c := range pg.Status.Conditions {
		if c.Type == scheduling.GroupScheduled {
			return c
		}
	}
	return scheduling.PodGroupCondition{}
}

func (s *stage) awaitReason(group, reason string) {
	s.Helper()
	s.await(group+" says "+reason, func() error {
		if c := s.condition(group); c.Reason != reason {
			return fmt.Errorf("it says %s: %s", c.Reason, c.Message)
		}
		return nil
	})
}

// TestScheduler shares one scheduler; each part cleans up after itself.
func TestScheduler(t *testing.T) {
	s := newStage(t)
	for i := range 5 {
		s.node(fmt.Sprintf("n%d", i), 10, map[string]string{"half": fmt.Sprint(i % 2)})
	}
	part := func(name string, f func(*stage)) {
		t.Run(name, func(t *testing.T) {
			c := *s
			c.T = t
			f(&c)
		})
	}
	part("two gangs of 60 % each, again and again", (*stage).twoGangs)
	part("quota", (*stage).quota)
	part("the example of preemption", (*stage).preemption)
	part("closed and missing queues", (*stage).closedQueue)
	part("single pods, and pods of the default scheduler", (*stage).singles)
	part("a gang keeps to what its pods ask of nodes", (*stage).constraints)
}

func (s *stage) twoGangs() {
	s.queue("two", "", 0)
	for round := range 25 {
		a, b := fmt.Sprintf("a%d", round), fmt.Sprintf("b%d", round)
		s.group(a, "two", 6, "5")
		s.group(b, "two", 6, "5")
		s.await("one of the gangs runs", func() error {
			na, nb := s.bound(a), s.bound(b)
			if na != 6 && nb != 6 {
				return fmt.Errorf("%d and %d", na, nb)
			}
			return nil
		})
		first, second := a, b
		if s.bound(b) > 0 {
			first, second = b, a
		}
		s.awaitReason(second, scheduling.ReasonNoRoom)
		if n := s.bound(second); n != 0 {
			s.Fatalf("%d pods of the gang that waits are bound", n)
		}
		s.end(first)
		s.awaitBound(second, 6)
		s.awaitReason(second, scheduling.ReasonScheduled)
		s.end(second)
	}
}

func (s *stage) quota() {
	s.queue("small", "10", 0)
	s.group("q1", "small", 2, "4")
	s.awaitBound("q1", 2)
	s.group("q2", "small", 2, "2")
	s.awaitReason("q2", scheduling.ReasonQuotaExceeded)
	if want := "the quota of queue small does not allow it: 4 cpu needed, 2 of 10 left"; s.condition("q2").Message != want {
		s.Errorf("q2 says %q, want %q", s.condition("q2").Message, want)
	}
	q := &scheduling.Queue{}
	s.must(s.client.Get(s.Context(), client.ObjectKey{Name: "small"}, q))
	q.Spec.Quota.Requests[corev1.ResourceCPU] = resource.MustParse("12")
	s.must(s.client.Update(s.Context(), q))
	s.awaitBound("q2", 2)
	s.end("q1")
	s.end("q2")
}

// preemption is the example of the specification, on a node of its own.
func (s *stage) preemption() {
	s.node("big", 300, map[string]string{"big": ""})
	here := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"big": ""} }
	for _, q := range []struct {
		name, cpu string
		priority  int32
	}{{"qa", "200", 1}, {"qb", "100", 1}, {"qc", "50", 2}, {"qd", "200", 2}} {
		s.queue(q.name, q.cpu, q.priority)
	}
	for _, g := range []string{"a1", "a2", "a3", "b1", "c1", "d1"} {
		s.group(g+"x", "q"+g[:1], 1, "50", here)
		s.awaitBound(g+"x", 1)
	}
	s.group("b2x", "qb", 1, "50", here)
	s.awaitReason("b2x", scheduling.ReasonNoRoom)
	s.group("c2x", "qc", 1, "50", here)
	s.awaitReason("c2x", scheduling.ReasonQuotaExceeded)
	s.group("d2x", "qd", 1, "50", here)
	s.awaitReason("d2x", scheduling.ReasonPreempting)
	s.await("a3x is being evicted", func() error {
		p := s.pods("a3x")[0]
		marked := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
		})
		if p.DeletionTimestamp == nil || !marked {
			return fmt.Errorf("conditions %v", p.Status.Conditions)
		}
		return nil
	})
	s.must(s.client.Delete(s.Context(), &s.pods("a3x")[0], client.GracePeriodSeconds(0))) // as its kubelet would do
	s.awaitBound("d2x", 1)
	for _, g := range []string{"a1", "a2", "b1", "c1", "d1"} {
		if s.bound(g+"x") != 1 {
			s.Errorf("%s does not run any more", g)
		}
	}
	for _, g := range []string{"a1", "a2", "a3", "b1", "b2", "c1", "c2", "d1", "d2"} {
		s.end(g + "x")
	}
	s.must(s.client.Delete(s.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "big"}}))
}

func (s *stage) closedQueue() {
	q := s.queue("closed", "", 0)
	q.Spec.Closed = true
	s.must(s.client.Update(s.Context(), q))
	s.group("shut", "closed", 2, "1")
	s.group("lost", "nowhere", 2, "1")
	s.awaitReason("shut", scheduling.ReasonQueueClosed)
	s.awaitReason("lost", scheduling.ReasonQueueNotFound)
	q.Spec.Closed = false
	s.must(s.client.Update(s.Context(), q))
	s.awaitBound("shut", 2)
	s.queue("nowhere", "", 0)
	s.awaitBound("lost", 2)
	s.end("shut")
	s.end("lost")
}

func (s *stage) singles() {
	single := s.pod("single", "1")
	other := s.pod("other", "10", func(p *corev1.Pod) { p.Spec.SchedulerName = corev1.DefaultSchedulerName })
	for _, p := range []*corev1.Pod{single, other} {
		s.await(p.Name+" is bound", func() error {
			s.must(s.client.Get(s.Context(), client.ObjectKeyFromObject(p), p))
			if p.Spec.NodeName == "" {
				return fmt.Errorf("conditions %v", p.Status.Conditions)
			}
			return nil
		})
	}
	s.group("rest", "default", 4, "10") // three nodes are free
	s.awaitReason("rest", scheduling.ReasonNoRoom)
	for _, p := range []*corev1.Pod{single, other} {
		s.must(s.client.Delete(s.Context(), p, client.GracePeriodSeconds(0)))
	}
	s.awaitBound("rest", 4)
	s.end("rest")
}

func (s *stage) constraints() {
	apart := func(p *corev1.Pod) {
		p.Labels["apart"] = p.Labels[scheduling.LabelGroupName]
		p.Spec.NodeSelector = map[string]string{"half": "0"}
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"apart": p.Labels["apart"]}}}}}}
	}
	for i := range 5 {
		n := &corev1.Node{}
		s.must(s.client.Get(s.Context(), client.ObjectKey{Name: fmt.Sprintf("n%d", i)}, n))
		n.Labels[corev1.LabelHostname] = n.Name
		s.must(s.client.Update(s.Context(), n))
	}
	s.group("fits", "default", 3, "1", apart)
	s.awaitBound("fits", 3)
	used := map[string]bool{}
	for _, p := range s.pods("fits") {
		used[p.Spec.NodeName] = true
	}
	if len(used) != 3 || used["n1"] || used["n3"] {
		s.Errorf("the gang is on %v", used)
	}
	s.group("toomany", "default", 4, "1", apart)
	s.awaitReason("toomany", scheduling.ReasonNoRoom)
	if n := s.bound("toomany"); n != 0 {
		s.Errorf("%d pods of a gang that cannot be apart are bound", n)
	}
	s.end("fits")
	s.end("toomany")
}
