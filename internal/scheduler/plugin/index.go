package plugin

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/scheduler/core"
)

// index is what the planner knows of pods, groups and queues, kept by events and by what the planner itself has
// decided. The planner owns it: no other goroutine reads or writes it.
type index struct {
	pods   map[types.UID]*member
	groups map[string]*group
	// waiting are the groups with a pod that waits, and those for which room is kept.
	waiting map[*group]bool
	queues  map[string]*queue
	used    map[string]core.Resources
	// guests are the pods of other schedulers that name a queue.
	guests map[types.UID]guest
	// attracted are the pods that wait and that others can make fit by coming.
	attracted map[types.UID]bool
	// freed counts what may have made room.
	freed uint64
	// nodesChanged: the capacities of the queues and the sites are to be counted anew.
	nodesChanged bool
	sites        *sites
	// filled: all was known when the planner began, which it does once the scheduler leads.
	filled bool
	// woken: something has changed that the planner should look at. alarm is when it should without that; zero: never.
	woken bool
	alarm time.Time
	// completed is told of groups whose minimum is bound and of those of which nothing runs.
	completed func(*group)
}

// member is a pod of a group. Where it is, or is about to be, is in core.Node alone.
type member struct {
	pod   *corev1.Pod
	core  *core.Pod
	group *group
	// constraints are what the pod asks of the labels and taints of its node.
	constraints string
	// attempt is the last plan that gave the pod a node.
	attempt *attempt
	// lastReported is why it waits, as was last written on it.
	lastReported podReport
}

// bound tells whether the API server knows the pod's node. A member that is not bound and has a node is being bound, or
// about to be.
func (m *member) bound() bool { return m.pod.Spec.NodeName != "" }

type queue struct {
	core     core.Queue
	spec     scheduling.QueueSpec
	shape    *scheduling.ResourceShape
	selector labels.Selector // nil: all nodes
	// users selects the namespaces whose users may use the queue; nil: none.
	users   labels.Selector
	created time.Time
}

// group is a PodGroup, or a pod without one.
type group struct {
	core core.Group
	key  types.NamespacedName
	// spec is nil where there is no PodGroup.
	spec *scheduling.PodGroup
	// single is the only pod of a group that is no PodGroup.
	single   bool
	finished map[types.UID]*metav1.PartialObjectMetadata
	// counted is the queue for which the group's pods are counted.
	counted string
	// changed: the group is to be tried whatever has been freed since tried.
	changed bool
	tried   uint64
	// asked: the queue does not select the group's namespace. asking: the API server has not said yet who may use it
	// all the same.
	asked, asking bool
	// failures counts the plans in a row that could not be carried out; none is made before backoff.
	failures int
	backoff  time.Time
	// reportAt is when something can be reported that was held back, so that it does not change too often; zero:
	// nothing was.
	reportAt     time.Time
	lastReported groupReport
}

func newIndex(completed func(*group)) *index {
	return &index{pods: map[types.UID]*member{}, groups: map[string]*group{}, waiting: map[*group]bool{}, queues: map[string]*queue{},
		used: map[string]core.Resources{}, guests: map[types.UID]guest{}, attracted: map[types.UID]bool{}, completed: completed, nodesChanged: true}
}

// wake has the planner look at what has changed.
func (x *index) wake() { x.woken = true }

// wakeAt has it do so at some time.
func (x *index) wakeAt(t time.Time) {
	if x.alarm.IsZero() || t.Before(x.alarm) {
		x.alarm = t
	}
}

// alarmed is called when it is time.
func (x *index) alarmed(now time.Time) {
	if !x.alarm.After(now) {
		x.alarm = time.Time{}
	}
	x.wake()
}

func groupKey(namespace, name string) string { return namespace + "/" + name }

// group finds or makes the group of that key.
func (x *index) group(key string, name types.NamespacedName) *group {
	g := x.groups[key]
	if g == nil {
		g = &group{key: name, finished: map[types.UID]*metav1.PartialObjectMetadata{}}
		g.core.Name, g.core.Min = key, 1
		x.groups[key] = g
	}
	return g
}

func (x *index) groupOf(pod *corev1.Pod) *group {
	if name := pod.Labels[scheduling.LabelGroupName]; name != "" {
		return x.group(groupKey(pod.Namespace, name), types.NamespacedName{Namespace: pod.Namespace, Name: name})
	}
	g := x.group("pod/"+string(pod.UID), types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
	g.single = true
	g.core.Created = pod.CreationTimestamp.Time
	return g
}

// podSeen takes in a pod that has not finished.
func (x *index) podSeen(pod *corev1.Pod) {
	if !ours(pod) {
		x.guestSeen(pod)
		return
	}
	if len(pod.Spec.SchedulingGates) > 0 {
		return
	}
	m := x.pods[pod.UID]
	if m == nil {
		m = &member{group: x.groupOf(pod), core: &core.Pod{UID: string(pod.UID), Name: pod.Name, Role: pod.Labels[scheduling.LabelRole],
			Created: pod.CreationTimestamp.Time}}
		m.core.Requests = requestsOf(pod)
		m.core.Shape = shapeOf(pod, m.core.Requests)
		m.constraints, m.pod = constraintsOf(pod), pod
		x.pods[pod.UID] = m
		m.group.core.Pods = inOrder(m.group.core.Pods, m.core)
		m.group.changed = true
		if attracted(pod) {
			x.attracted[pod.UID] = true
		}
		if len(m.group.finished) > 0 && pod.Spec.NodeName == "" {
			x.await(m.group)
		}
	}
	if a := m.attempt; a != nil && !m.bound() && pod.Spec.NodeName != "" && a.bind() {
		m.group.failures = 0
	}
	m.pod = pod
	m.core.Ending = pod.DeletionTimestamp != nil
	if pod.Spec.NodeName != "" {
		delete(x.attracted, pod.UID)
		if r := requestsOf(pod); pod.Spec.NodeName == m.core.Node && !equal(r, m.core.Requests) { // resized in place
			x.place(m, "")
			m.core.Requests = r
		}
		x.place(m, pod.Spec.NodeName)
	}
	x.touch(m.group)
}

// inOrder inserts a pod into the pods of its group, the oldest first: a group looks alike whatever order its pods came
// in.
func inOrder(pods []*core.Pod, p *core.Pod) []*core.Pod {
	at, _ := slices.BinarySearchFunc(pods, p, func(a, b *core.Pod) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return slices.Insert(pods, at, p)
}

// finishedLag is how far behind the news of pods that have finished may be.
const finishedLag = 200 * time.Millisecond

// await gives the news time to arrive that members which count as finished are gone: a gang that is restarted as a
// whole must not be taken for one that is half-finished.
func (x *index) await(g *group) {
	if until := time.Now().Add(finishedLag); g.backoff.Before(until) {
		g.backoff = until
		x.wakeAt(until)
	}
}

func equal(a, b core.Resources) bool {
	if len(a) != len(b) {
		return false
	}
	for name, v := range a {
		if b[name] != v {
			return false
		}
	}
	return true
}

// podGone takes note that a pod has finished or is deleted.
func (x *index) podGone(pod *corev1.Pod) {
	if !ours(pod) {
		x.guestGone(pod)
		return
	}
	m := x.pods[pod.UID]
	if m == nil {
		return
	}
	delete(x.attracted, pod.UID)
	x.place(m, "")
	m.core.Gone = true
	delete(x.pods, pod.UID)
	g := m.group
	g.core.Pods = slices.DeleteFunc(g.core.Pods, func(p *core.Pod) bool { return p == m.core })
	x.freed++
	x.touch(g)
}

// podOf is the pod that a member of a group stands for.
func (x *index) podOf(p *core.Pod) *corev1.Pod { return x.pods[types.UID(p.UID)].pod }

// place notes where a pod is, or is about to be: on no node if node is empty.
func (x *index) place(m *member, node string) {
	if m.core.Node == node {
		return
	}
	q := m.group.queue()
	m.group.counted = q
	if m.core.Node == "" || node == "" {
		sign := int64(1)
		if node == "" {
			sign = -1
		}
		x.count(q, m.core.Requests, sign)
	}
	m.core.Node = node
}

func (x *index) count(queue string, r core.Resources, sign int64) {
	used := x.used[queue]
	if used == nil {
		used = core.Resources{}
		x.used[queue] = used
	}
	for name, v := range r {
		used[name] += sign * v
	}
}

// queue is the queue of a group: that of its PodGroup, or else the one that its pods name.
func (g *group) queue() string {
	if g.core.Queue == "" {
		return scheduling.DefaultQueue
	}
	return g.core.Queue
}

// setQueue moves a group, with what its pods use, to another queue.
func (x *index) setQueue(g *group, queue string) {
	if g.core.Queue == queue {
		return
	}
	for _, p := range g.core.Pods {
		if p.Node != "" {
			x.count(g.queue(), p.Requests, -1)
		}
	}
	g.core.Queue = queue
	for _, p := range g.core.Pods {
		if p.Node != "" {
			x.count(g.queue(), p.Requests, 1)
		}
	}
}

// finishedSeen and finishedGone keep the members of groups that have finished, of which the scheduler's own caches know
// nothing. Those that are being deleted are none: they were evicted, or will be replaced.
func (x *index) finishedSeen(o *metav1.PartialObjectMetadata) {
	if o.DeletionTimestamp != nil {
		x.finishedGone(o)
		return
	}
	name := o.Labels[scheduling.LabelGroupName]
	g := x.group(groupKey(o.Namespace, name), types.NamespacedName{Namespace: o.Namespace, Name: name})
	if g.finished[o.UID] == nil {
		g.finished[o.UID] = o
		g.changed = true
		x.touch(g)
	}
}

func (x *index) finishedGone(o *metav1.PartialObjectMetadata) {
	if g := x.groups[groupKey(o.Namespace, o.Labels[scheduling.LabelGroupName])]; g != nil {
		delete(g.finished, o.UID)
		x.touch(g)
	}
}
