package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	resourcehelper "k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/observed"
)

// RoomRow is a resource that a job needs.
type RoomRow struct {
	Name, Needs string
	// Left is the unused quota of the queue; empty if the queue has no quota for the resource or is not known. Free is
	// the free capacity of the schedulable nodes; empty if it is not known or if there are no such nodes. Short is true
	// if Needs exceeds the unused quota or the free capacity.
	Left, Free string
	Short      bool
}

// Room is an estimate of whether a job would start now.
type Room struct {
	// Queue is empty for a job without a queue. Href is the link to the queue's card; empty without a queue.
	Queue, Href  string
	Verdict, Why string
	Tone         Tone
	Rows         []RoomRow
}

// Verdicts of Room. The page puts "It" before the verdict.
const (
	startsNow  = "would start now"
	maybeNow   = "may start now"
	waits      = "would wait"
	neverFits  = "can never start"
	tooFew     = "does not fit"
	notYet     = "starts nothing yet"
	notPlanned = "is not known"
)

// shape is a set of pods of a job with equal specs. requests are the requests of one pod.
type shape struct {
	count    int
	requests corev1.ResourceList
	spec     *corev1.PodSpec
}

// shapes returns the pods that a job needs to start, one shape for each role. A gang with a single role needs only
// MinMember pods.
func shapes(j *engine.Job) []shape {
	all := make([]shape, 0, len(j.Roles))
	for i := range j.Roles {
		s := shape{count: j.Roles[i].Replicas, spec: &j.Roles[i].Template.Spec, requests: observed.Requests(&j.Roles[i].Template.Spec)}
		if len(j.Roles) == 1 && j.Gang != nil && j.Gang.MinMember > 0 {
			s.count = min(s.count, int(j.Gang.MinMember))
		}
		all = append(all, s)
	}
	return all
}

// times returns list multiplied by n.
func times(list corev1.ResourceList, n int) corev1.ResourceList {
	all := corev1.ResourceList{}
	for name, q := range list {
		q = q.DeepCopy()
		q.Mul(int64(n))
		all[name] = q
	}
	return all
}

// room estimates whether a job would start now if nothing else were submitted.
func (in *SubmitInput) room(j *engine.Job) *Room {
	r := &Room{}
	need, pods := corev1.ResourceList{}, shapes(j)
	for _, s := range pods {
		add(need, times(s.requests, s.count))
	}
	var queue *scheduling.Queue
	if j.Gang != nil {
		r.Queue = cmp.Or(j.Gang.Queue, scheduling.DefaultQueue)
		r.Href = "/queues#queue-" + r.Queue
		if i := slices.IndexFunc(in.Queues.Queues, func(q *scheduling.Queue) bool { return q.Name == r.Queue }); i >= 0 {
			queue = in.Queues.Queues[i]
		}
	}
	free, known := in.freeNodes(queue)
	r.rows(need, queue, free)
	r.Verdict, r.Tone, r.Why = in.verdict(j, r, need, queue)
	if r.Verdict != startsNow || !known {
		return r
	}
	if fit, all := place(pods, free, false), count(pods); fit < all {
		r.Verdict, r.Tone, r.Why = waits, Wait, fmt.Sprintf("The nodes have room for %d of its %d pods now.", fit, all)
		if fit := place(pods, free, true); fit < all {
			r.Verdict, r.Tone, r.Why = tooFew, Bad, fmt.Sprintf("The nodes would have room for %d of its %d pods if nothing else ran.", fit, all)
		}
		return r
	}
	if j.Gang == nil {
		return r
	}
	ahead := 0
	for _, w := range observed.Waiters(r.Queue, in.Queues.Groups, in.Queues.Waiting) {
		if w.Priority >= j.Gang.Priority {
			ahead++
		}
	}
	if ahead > 0 {
		r.Verdict, r.Tone, r.Why = maybeNow, Wait, fmt.Sprintf("There is room, and %d %s in the queue before it.", ahead, map[bool]string{true: "group waits", false: "groups wait"}[ahead == 1])
	}
	return r
}

// verdict returns the verdict that follows from the job and its queue. If the verdict is startsNow, the caller must
// also check the nodes and the groups that wait in the queue.
func (in *SubmitInput) verdict(j *engine.Job, r *Room, need corev1.ResourceList, queue *scheduling.Queue) (verdict string, tone Tone, why string) {
	switch {
	case j.Pause:
		return notYet, Quiet, "The job is paused: it starts when it is resumed."
	case j.Gang == nil:
		return startsNow, Good, "It has no queue: the cluster's default scheduler places its pods one by one."
	case queue == nil && len(in.Queues.Queues) == 0 && len(in.Queues.Hidden) > 0:
		return notPlanned, Quiet, "What you may see does not tell whether queue " + r.Queue + " has room."
	case queue == nil:
		return waits, Wait, "There is no queue " + r.Queue + "."
	case queue.Spec.Closed:
		return waits, Wait, "Queue " + queue.Name + " is closed: no new group starts in it."
	}
	for _, name := range slices.Sorted(maps.Keys(need)) {
		quota, bound := queue.Spec.Quota.Requests[name]
		if q := need[name]; bound && q.Cmp(quota) > 0 {
			return neverFits, Bad, fmt.Sprintf("It needs %s %s, and the whole quota of queue %s is %s.", amount(name, q), name, queue.Name, amount(name, quota))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(need)) {
		left, bound := leftOf(queue, name)
		if q := need[name]; bound && q.Cmp(left) > 0 {
			return waits, Wait, fmt.Sprintf("It needs %s %s, and queue %s has %s left.", amount(name, q), name, queue.Name, amount(name, left))
		}
	}
	return startsNow, Good, "Queue " + queue.Name + " has room for it."
}

// leftOf returns the unused quota of a queue for a resource; zero if the queue uses more than its quota. bound is false
// if the queue has no quota for the resource.
func leftOf(q *scheduling.Queue, name corev1.ResourceName) (left resource.Quantity, bound bool) {
	quota, bound := q.Spec.Quota.Requests[name]
	left = quota.DeepCopy()
	left.Sub(q.Status.Allocated[name])
	if left.Sign() < 0 {
		left = resource.Quantity{}
	}
	return left, bound
}

// rows fills r.Rows with the needed, unused and free amount of each resource that the job needs.
func (r *Room) rows(need corev1.ResourceList, queue *scheduling.Queue, nodes []freeNode) {
	free := corev1.ResourceList{}
	for i := range nodes {
		add(free, nodes[i].free)
	}
	for _, name := range slices.Sorted(maps.Keys(need)) {
		q := need[name]
		if q.IsZero() {
			continue
		}
		row := RoomRow{Name: string(name), Needs: amount(name, q)}
		if queue != nil {
			if left, bound := leftOf(queue, name); bound {
				row.Left, row.Short = amount(name, left), q.Cmp(left) > 0
			}
		}
		if len(nodes) > 0 {
			row.Free, row.Short = amount(name, free[name]), row.Short || q.Cmp(free[name]) > 0
		}
		r.Rows = append(r.Rows, row)
	}
}

// freeNode is a schedulable node, which is ready and not cordoned, with its free resources.
type freeNode struct {
	*corev1.Node
	free corev1.ResourceList
}

// freeNodes returns the schedulable nodes of a queue, or of the cluster if queue is nil, sorted by name. known is false
// if the user may not list all nodes and pods.
func (in *SubmitInput) freeNodes(queue *scheduling.Queue) (all []freeNode, known bool) {
	if len(in.Nodes.Hidden) > 0 {
		return nil, false
	}
	selector := labels.Everything()
	if queue != nil && queue.Spec.NodeSelector != nil {
		if s, err := metav1.LabelSelectorAsSelector(queue.Spec.NodeSelector); err == nil {
			selector = s
		}
	}
	used := map[string]corev1.ResourceList{}
	for _, p := range in.Nodes.Pods {
		if used[p.Spec.NodeName] == nil {
			used[p.Spec.NodeName] = corev1.ResourceList{}
		}
		add(used[p.Spec.NodeName], resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{}))
	}
	for _, n := range in.Nodes.Nodes {
		ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		if !ready || n.Spec.Unschedulable || !selector.Matches(labels.Set(n.Labels)) {
			continue
		}
		f := freeNode{n, corev1.ResourceList{}}
		for name, q := range n.Status.Allocatable {
			q = q.DeepCopy()
			if q.Sub(used[n.Name][name]); q.Sign() < 0 {
				q = resource.Quantity{}
			}
			f.free[name] = q
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b freeNode) int { return strings.Compare(a.Name, b.Name) })
	return all, true
}

func count(pods []shape) int {
	n := 0
	for _, s := range pods {
		n += s.count
	}
	return n
}

// place returns how many pods fit on the nodes; if empty is true, as if nothing else ran there. It considers requests,
// node selectors, node affinity and taints, but not topology spread, pod affinity or the limit of pods per node.
func place(pods []shape, nodes []freeNode, empty bool) int {
	left := make([]corev1.ResourceList, len(nodes))
	for i := range nodes {
		if left[i] = nodes[i].free.DeepCopy(); empty {
			left[i] = nodes[i].Status.Allocatable.DeepCopy()
		}
	}
	placed := 0
	for _, s := range pods {
		wanted := s.count
		for i := range nodes {
			if !takes(nodes[i].Node, s.spec) {
				continue
			}
			n := min(wanted, maxCopies(s.requests, left[i]))
			used := times(s.requests, n)
			for name, q := range used {
				l := left[i][name]
				l.Sub(q)
				left[i][name] = l
			}
			placed, wanted = placed+n, wanted-n
		}
	}
	return placed
}

// takes reports whether a node accepts pods of a spec, regardless of its free resources.
func takes(n *corev1.Node, spec *corev1.PodSpec) bool {
	pod := &corev1.Pod{Spec: *spec}
	if fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n); err != nil || !fits {
		return false
	}
	_, keepsOut := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints, spec.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule
	}, true)
	return !keepsOut
}

// maxCopies returns how many pods with these requests fit into left, at most 1<<20.
func maxCopies(requests, left corev1.ResourceList) int {
	n := int64(1 << 20)
	for name, q := range requests {
		if q.Sign() <= 0 {
			continue
		}
		l := left[name]
		n = min(n, l.ScaledValue(resource.Milli)/max(1, q.ScaledValue(resource.Milli)))
	}
	return int(max(0, n))
}
