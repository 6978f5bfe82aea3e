package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/test/kit/await"
	"tensorstack.dev/batch/test/kit/namespace"
)

// stage is the environment of a test: a separate control plane, or a part of a shared one.
type stage struct {
	*namespace.Test
	// prefix is the beginning of the names of cluster-scoped objects; empty on a separate control plane.
	prefix string
}

// node adds a node with cpu CPUs. Pods can be bound to it but never run.
func (s *stage) node(name string, cpu int, labels map[string]string) {
	s.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.own(name), Labels: map[string]string{corev1.LabelHostname: s.own(name)}}}
	maps.Copy(n.Labels, labels)
	if s.prefix != "" {
		n.Labels[labelStage] = s.Namespace
	}
	s.Must(s.Client.Create(s.Context(), n))
	s.UpdateStatus(n, func() {
		n.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(cpu), resource.DecimalSI),
			corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("110")}
		n.Status.Allocatable = n.Status.Capacity
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Test"}}
	})
	s.changeNode(name, func(n *corev1.Node) { n.Spec.Taints = nil }) // admission taints new nodes as not ready
}

// simulated adds a node that KWOK manages.
func (s *stage) simulated(name string, cpu int) {
	s.Helper()
	s.node(name, cpu, nil)
	// The label is added later, because KWOK would give a new node with it its default properties.
	s.changeNode(name, func(n *corev1.Node) { n.Labels[labelSimulated] = "" })
}

func (s *stage) changeNode(name string, change func(*corev1.Node)) {
	s.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.own(name)}}
	s.Must(s.TryUpdate(n, func() { change(n) }))
}

func (s *stage) changeQueue(name string, change func(*scheduling.QueueSpec)) {
	s.Helper()
	q := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: s.own(name)}}
	s.Must(s.TryUpdate(q, func() { change(&q.Spec) }))
}

func cpus(amount string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
}

// queue adds a queue that uses the stage's nodes and that all namespaces may use. cpu is its quota; an empty string
// means no quota.
func (s *stage) queue(name string, cpu string, priority int32, change ...func(*scheduling.QueueSpec)) *scheduling.Queue {
	s.Helper()
	q := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: s.own(name)}, Spec: scheduling.QueueSpec{Priority: priority,
		NamespaceSelector: &metav1.LabelSelector{}, NodeSelector: s.nodeSelector()}}
	if cpu != "" {
		q.Spec.Quota.Requests = cpus(cpu)
	}
	for _, c := range change {
		c(&q.Spec)
	}
	s.Must(s.Client.Create(s.Context(), q))
	return q
}

// protected changes a queue so that its pods cannot be preempted.
func protected(q *scheduling.QueueSpec) { no := false; q.Preemptible = &no }

// podGroup adds a PodGroup with the minimum n, but no pods.
func (s *stage) podGroup(name, queue string, n int, change ...func(*scheduling.PodGroupSpec)) {
	s.Helper()
	pg := &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.Namespace},
		Spec: scheduling.PodGroupSpec{MinMember: int32(n), Queue: s.own(queue)}}
	for _, c := range change {
		c(&pg.Spec)
	}
	s.Must(s.Client.Create(s.Context(), pg))
}

// group adds a PodGroup with n pods, all of which must start together.
func (s *stage) group(name, queue string, n int, cpu string, change ...func(*corev1.Pod)) {
	s.Helper()
	s.podGroup(name, queue, n)
	s.members(name, queue, n, cpu, change...)
}

// members adds n pods, each with a request of cpu, to a group.
func (s *stage) members(group, queue string, n int, cpu string, change ...func(*corev1.Pod)) {
	s.Helper()
	for i := range n {
		s.member(fmt.Sprintf("%s-%d", group, i), group, queue, cpu, change...)
	}
}

func (s *stage) member(name, group, queue, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
	s.Helper()
	return s.pod(name, cpu, append([]func(*corev1.Pod){func(p *corev1.Pod) {
		p.Labels = map[string]string{scheduling.LabelGroupName: group, scheduling.LabelQueue: s.own(queue)}
	}}, change...)...)
}

// inRole gives a pod a role in its group.
func inRole(role string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[scheduling.LabelRole] = role }
}

func (s *stage) pod(name, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
	s.Helper()
	p := s.newPod(name, cpu, change...)
	s.Must(s.Client.Create(s.Context(), p))
	return p
}

func (s *stage) newPod(name, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.Namespace},
		Spec: corev1.PodSpec{SchedulerName: scheduling.SchedulerName, Containers: []corev1.Container{{Name: "main", Image: "none",
			Resources: corev1.ResourceRequirements{Requests: cpus(cpu)}}}}}
	for _, c := range change {
		c(p)
	}
	return p
}

// byDefault assigns a pod to the default scheduler, on the stage's nodes.
func (s *stage) byDefault(p *corev1.Pod) {
	p.Spec.SchedulerName = corev1.DefaultSchedulerName
	if s.prefix != "" {
		p.Spec.NodeSelector = map[string]string{labelStage: s.Namespace}
	}
}

// pods returns the pods of a group.
func (s *stage) pods(group string) []corev1.Pod {
	s.Helper()
	return s.Pods(client.MatchingLabels{scheduling.LabelGroupName: group})
}

// all returns all pods of the stage.
func (s *stage) all() []corev1.Pod {
	s.Helper()
	return s.Pods()
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

// nodesOf returns the nodes of a group's pods, each once and sorted, with the names that the test gave them.
func (s *stage) nodesOf(group string) []string {
	s.Helper()
	var all []string
	for _, p := range s.pods(group) {
		if p.Spec.NodeName != "" {
			all = append(all, p.Spec.NodeName[len(s.prefix):])
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// evicted returns the sorted names of the existing pods with the condition DisruptionTarget, which the scheduler sets
// when it evicts a pod.
func (s *stage) evicted() (names []string) {
	s.Helper()
	for _, p := range s.all() {
		if disrupted(&p) {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names
}

func disrupted(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
}

// end deletes groups and their pods.
func (s *stage) end(groups ...string) {
	s.Helper()
	for _, group := range groups {
		s.Must(s.Client.DeleteAllOf(s.Context(), &corev1.Pod{}, client.InNamespace(s.Namespace),
			client.MatchingLabels{scheduling.LabelGroupName: group}, client.GracePeriodSeconds(0)))
		s.Must(s.Client.Delete(s.Context(), &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: group, Namespace: s.Namespace}}))
	}
}

// remove deletes a pod immediately, as its kubelet would do.
func (s *stage) remove(name string) {
	s.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.Namespace}}
	s.Must(s.Client.Delete(s.Context(), p, client.GracePeriodSeconds(0)))
}

// askToEnd requests the deletion of a pod. The pod exists until remove is called, which acts as its kubelet.
func (s *stage) askToEnd(name string) {
	s.Helper()
	s.Must(s.Client.Delete(s.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.Namespace}}))
}

// succeed makes a pod succeed.
func (s *stage) succeed(name string) {
	s.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.Namespace}}
	s.Must(s.Client.Status().Patch(s.Context(), p, mergePatch([]byte(`{"status":{"phase":"Succeeded"}}`))))
}

func (s *stage) awaitBound(group string, n int) {
	s.Helper()
	s.Await(fmt.Sprintf("%d pods of %s are bound", n, group), func() error {
		if got := s.bound(group); got != n {
			return fmt.Errorf("%d are bound; the group's condition is %+v", got, s.condition(group))
		}
		return nil
	})
}

// awaitPod waits until a pod is bound, and returns the node's name without prefix.
func (s *stage) awaitPod(name string) (node string) {
	s.Helper()
	s.Await(name+" is bound", func() error {
		p := &corev1.Pod{}
		s.Must(s.Client.Get(s.Context(), client.ObjectKey{Namespace: s.Namespace, Name: name}, p))
		if node = p.Spec.NodeName; node == "" {
			return fmt.Errorf("conditions %v", p.Status.Conditions)
		}
		return nil
	})
	return node[len(s.prefix):]
}

func (s *stage) condition(group string) scheduling.PodGroupCondition {
	pg := &scheduling.PodGroup{}
	if err := s.Client.Get(s.Context(), client.ObjectKey{Namespace: s.Namespace, Name: group}, pg); err != nil {
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
	s.Await(group+" has the reason "+reason, func() error {
		if c := s.condition(group); c.Reason != reason {
			return fmt.Errorf("its condition is %s: %s", c.Reason, c.Message)
		}
		return nil
	})
}

// awaitRefused waits until a group has the reason, and ends the test if one of its pods is bound.
func (s *stage) awaitRefused(group, reason string) {
	s.Helper()
	s.awaitReason(group, reason)
	if n := s.bound(group); n != 0 {
		s.Fatalf("%d pods of %s, which waits (%s), are bound", n, group, reason)
	}
}

// soon is the longest allowed time until a group starts after an event that makes it fit. Without the event, the
// scheduler would retry after 30 s.
const soon = 20 * time.Second

// awaitSoon waits until a group that an event has just made fit is bound.
func (s *stage) awaitSoon(group string, n int) {
	s.Helper()
	began := time.Now()
	s.awaitBound(group, n)
	if time.Since(began) > soon {
		await.Overdue(s, group+" started late: no event woke it")
	}
}

func keyOf(o client.Object) client.ObjectKey { return client.ObjectKeyFromObject(o) }

func mergePatch(text []byte) client.Patch { return client.RawPatch(types.MergePatchType, text) }
