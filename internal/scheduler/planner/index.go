package planner

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
	"tensorstack.dev/batch/internal/scheduler/podspec"
	"tensorstack.dev/batch/internal/scheduler/sites"
)

// index is the planner's state of pods, groups and queues: what events reported and what the planner has decided. The
// planner owns it; no other goroutine reads or writes it.
type index struct {
	// pods holds the members by UID, and groups the groups by Name: NAMESPACE/NAME, or pod/UID for a single pod.
	pods   map[types.UID]*member
	groups map[string]*group
	// waiting are the groups with a waiting pod or a reservation.
	waiting map[*group]bool
	queues  map[string]*queue
	// used is the sum of the requests of pods with a planned or bound node, by queue. It includes the pods in foreign.
	used map[string]core.Resources
	// foreign are the bound pods of other schedulers that name a queue.
	foreign map[types.UID]foreignPod
	// attracted are the waiting pods that may fit after other pods start, because of their affinity or topology spread
	// constraints.
	attracted map[types.UID]bool
	// freed counts the events that may have freed room.
	freed uint64
	// nodesChanged is true if the capacities of the queues and the sites must be computed again.
	nodesChanged bool
	sites        *sites.Sites
	// filled is true if the index is complete. The planner begins to plan only after all caches have synced.
	filled bool
	// woken is true if a round is requested. alarm is the time at which to request a round without an event; zero means
	// never.
	woken bool
	alarm time.Time
	// touched are the groups whose pods have changed since the planner last took this list.
	touched []*group
}

// member is a pod of a group. Its field Node is the planned or the bound node.
type member struct {
	*core.Pod
	object *corev1.Pod
	group  *group
	// constraints is equal for pods that may use the same nodes, as far as the labels and taints of nodes decide.
	constraints string
	// attempt is the last plan that gave the pod a node.
	attempt *attempt
	// lastReported is the condition that was last written to the pod; empty if it is not known.
	lastReported podReport
}

// bound reports whether the API server has bound the pod to a node. A member that has a node and is not bound is
// planned or being bound.
func (m *member) bound() bool { return m.object.Spec.NodeName != "" }

// queue is a queue with what events reported about it.
type queue struct {
	core.Queue
	spec  scheduling.QueueSpec
	shape *scheduling.ResourceShape
	// pool is the set of nodes that the queue may use.
	pool *sites.Pool
	// users selects the namespaces whose users may use the queue; nil selects none.
	users   labels.Selector
	created time.Time
}

// group is a PodGroup with its pods, or a single pod that names no PodGroup.
type group struct {
	core.Group
	key types.NamespacedName
	// spec is nil if there is no PodGroup.
	spec *scheduling.PodGroup
	// single marks the group of a single pod that belongs to no PodGroup.
	single   bool
	finished map[types.UID]*metav1.PartialObjectMetadata
	// started is true if a pod has a node or has finished.
	started bool
	// changed is true if the next round must try the group even if no room was freed since the last try. tried is the
	// value of index.freed at that try.
	changed bool
	tried   uint64
	// asked is true if the queue does not select the group's namespace. asking is true until the API server has
	// answered whether the requester may use the queue.
	asked, asking bool
	// failures is the number of consecutive failed plans. Rounds do not try the group before backoff.
	failures int
	backoff  time.Time
	// reportAt is the time at which a postponed report may be written; zero if there is none.
	reportAt     time.Time
	lastReported groupReport
}

func newIndex() *index {
	return &index{pods: map[types.UID]*member{}, groups: map[string]*group{}, waiting: map[*group]bool{}, queues: map[string]*queue{},
		used: map[string]core.Resources{}, foreign: map[types.UID]foreignPod{}, attracted: map[types.UID]bool{}, nodesChanged: true}
}

// wake requests a round.
func (x *index) wake() { x.woken = true }

// wakeAt requests a round at time t, unless one is already requested for an earlier time.
func (x *index) wakeAt(t time.Time) {
	if x.alarm.IsZero() || t.Before(x.alarm) {
		x.alarm = t
	}
}

// alarmed handles the expiry of the timer of Run: it requests a round, and clears the alarm if the time of the alarm
// has come.
func (x *index) alarmed(now time.Time) {
	if !x.alarm.After(now) {
		x.alarm = time.Time{}
	}
	x.wake()
}

func groupKey(namespace, name string) string { return namespace + "/" + name }

// group returns the group with this key. It creates the group if there is none.
func (x *index) group(key string, name types.NamespacedName) *group {
	g := x.groups[key]
	if g == nil {
		g = &group{key: name, finished: map[types.UID]*metav1.PartialObjectMetadata{}}
		g.Name, g.Min = key, 1
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
	g.Created = pod.CreationTimestamp.Time
	return g
}

// podSeen adds or updates a pod that has not finished. It ignores pods with scheduling gates.
func (x *index) podSeen(pod *corev1.Pod, now time.Time) {
	if !podspec.Ours(pod) {
		x.foreignPodSeen(pod)
		return
	}
	if len(pod.Spec.SchedulingGates) > 0 {
		return
	}
	m := x.pods[pod.UID]
	if m == nil {
		m = &member{group: x.groupOf(pod), Pod: &core.Pod{UID: string(pod.UID), Name: pod.Name, Role: pod.Labels[scheduling.LabelRole],
			Created: pod.CreationTimestamp.Time}}
		m.Requests = podspec.Requests(pod)
		m.Shape = podspec.Shape(pod, m.Requests)
		m.constraints, m.object = podspec.Constraints(pod), pod
		x.pods[pod.UID] = m
		m.group.Pods = inOrder(m.group.Pods, m.Pod)
		m.group.changed = true
		if podspec.Attracted(pod) {
			x.attracted[pod.UID] = true
		}
		if len(m.group.finished) > 0 && pod.Spec.NodeName == "" {
			x.await(m.group, now)
		}
	}
	if a := m.attempt; a != nil && !m.bound() && pod.Spec.NodeName != "" && a.bind() {
		m.group.failures = 0
		attempts.WithLabelValues(attemptBound).Inc()
	}
	m.object = pod
	m.Ending = pod.DeletionTimestamp != nil
	if pod.Spec.NodeName != "" {
		delete(x.attracted, pod.UID)
		if r := podspec.Requests(pod); pod.Spec.NodeName == m.Node && !equal(r, m.Requests) { // resized in place
			x.setNode(m, "")
			m.Requests = r
		}
		x.setNode(m, pod.Spec.NodeName)
	}
	x.touch(m.group, now)
}

// inOrder inserts a pod into the pods of its group, which are sorted by age, so that the result does not depend on the
// order of events.
func inOrder(pods []*core.Pod, p *core.Pod) []*core.Pod {
	at, _ := slices.BinarySearchFunc(pods, p, func(a, b *core.Pod) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return slices.Insert(pods, at, p)
}

// finishedLag is how long the planner waits for late events about finished pods.
const finishedLag = 200 * time.Millisecond

// await delays the planning of a group, so that deletions of finished members can arrive first. Otherwise a gang that
// is restarted as a whole would appear to be half finished.
func (x *index) await(g *group, now time.Time) {
	if until := now.Add(finishedLag); g.backoff.Before(until) {
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

// podGone removes a pod that has finished or is deleted.
func (x *index) podGone(pod *corev1.Pod, now time.Time) {
	if !podspec.Ours(pod) {
		x.foreignPodGone(pod)
		return
	}
	m := x.pods[pod.UID]
	if m == nil {
		return
	}
	delete(x.attracted, pod.UID)
	x.setNode(m, "")
	m.Gone = true
	delete(x.pods, pod.UID)
	g := m.group
	g.Pods = slices.DeleteFunc(g.Pods, func(p *core.Pod) bool { return p == m.Pod })
	x.freed++
	x.touch(g, now)
}

// objectOf returns the API object of a member.
func (x *index) objectOf(p *core.Pod) *corev1.Pod { return x.pods[types.UID(p.UID)].object }

// setNode sets the planned or bound node of a pod, and updates the use of the queue. An empty node means none.
func (x *index) setNode(m *member, node string) {
	if m.Node == node {
		return
	}
	q := m.group.queueName()
	if m.Node == "" || node == "" {
		sign := int64(1)
		if node == "" {
			sign = -1
		}
		x.count(q, m.Requests, sign)
	}
	m.Node = node
}

func (x *index) count(name string, r core.Resources, sign int64) {
	used := x.used[name]
	if used == nil {
		used = core.Resources{}
		x.used[name] = used
	}
	for resource, v := range r {
		used[resource] += sign * v
	}
}

// uid returns the UID of the PodGroup. If there is none, it returns the name of the group, which for a single pod
// contains the UID of the pod.
func (g *group) uid() string {
	if g.spec == nil {
		return g.Name
	}
	return string(g.spec.UID)
}

// queueName returns the queue of a group: the queue that its PodGroup or its pods name, or the default queue.
func (g *group) queueName() string {
	if g.Queue == "" {
		return scheduling.DefaultQueue
	}
	return g.Queue
}

// setQueue moves a group and the use of its pods to another queue.
func (x *index) setQueue(g *group, name string) {
	if g.Queue == name {
		return
	}
	for _, p := range g.Pods {
		if p.Node != "" {
			x.count(g.queueName(), p.Requests, -1)
		}
	}
	g.Queue = name
	for _, p := range g.Pods {
		if p.Node != "" {
			x.count(g.queueName(), p.Requests, 1)
		}
	}
}

// finishedSeen records a finished member of a group. The scheduler's own caches do not contain finished pods. Members
// that are being deleted do not count: they were evicted or will be replaced.
func (x *index) finishedSeen(o *metav1.PartialObjectMetadata, now time.Time) {
	if o.DeletionTimestamp != nil {
		x.finishedGone(o, now)
		return
	}
	name := o.Labels[scheduling.LabelGroupName]
	g := x.group(groupKey(o.Namespace, name), types.NamespacedName{Namespace: o.Namespace, Name: name})
	if g.finished[o.UID] == nil {
		g.finished[o.UID] = o
		g.changed = true
		x.touch(g, now)
	}
}

func (x *index) finishedGone(o *metav1.PartialObjectMetadata, now time.Time) {
	if g := x.groups[groupKey(o.Namespace, o.Labels[scheduling.LabelGroupName])]; g != nil {
		delete(g.finished, o.UID)
		x.touch(g, now)
	}
}
