package planner

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/scheduler/core"
	"tensorstack.dev/batch/internal/scheduler/podspec"
	"tensorstack.dev/batch/internal/scheduler/sites"
)

func (x *index) podGroupSeen(pg *scheduling.PodGroup, now time.Time) {
	g := x.group(groupKey(pg.Namespace, pg.Name), types.NamespacedName{Namespace: pg.Namespace, Name: pg.Name})
	fresh := g.spec == nil || g.spec.UID != pg.UID
	changed := fresh || !apiequality.Semantic.DeepEqual(g.spec.Spec, pg.Spec)
	g.spec = pg
	if fresh {
		g.lastReported, g.failures = groupReportOf(pg), 0
	}
	if !changed {
		return
	}
	g.changed = true
	c := &g.Group
	c.Min, c.Created = int(max(pg.Spec.MinMember, 1)), pg.CreationTimestamp.Time
	c.Topology, c.Roles = core.Topology(pg.Spec.TopologyPolicy), map[string]int{}
	for _, role := range pg.Spec.Roles {
		c.Roles[role.Name] = int(role.MinMember)
	}
	x.setQueue(g, cmp.Or(pg.Spec.Queue, scheduling.DefaultQueue))
	c.Priority = x.priority(g)
	x.touch(g, now)
}

func (x *index) podGroupGone(pg *scheduling.PodGroup, now time.Time) {
	if g := x.groups[groupKey(pg.Namespace, pg.Name)]; g != nil {
		g.spec = nil
		x.touch(g, now)
	}
}

func (x *index) queueSeen(q *scheduling.Queue) {
	old := x.queues[q.Name]
	if old != nil && apiequality.Semantic.DeepEqual(old.spec, q.Spec) && apiequality.Semantic.DeepEqual(old.shape, q.Status.ResourceShape) {
		return
	}
	n := &queue{created: q.CreationTimestamp.Time, spec: q.Spec, shape: q.Status.ResourceShape, pool: sites.NewPool(q.Name, q.Spec.NodeSelector), Queue: core.Queue{Name: q.Name, Quota: podspec.Amounts(q.Spec.Quota.Requests), Priority: q.Spec.Priority,
		Preemptible: q.Spec.Preemptible == nil || *q.Spec.Preemptible, Closed: q.Spec.Closed}}
	if s := q.Spec.NamespaceSelector; s != nil {
		n.users = sites.SelectorOf(s)
	}
	n.limitPods()
	x.queues[q.Name] = n
	for _, g := range x.groups {
		if g.spec != nil && g.queueName() == q.Name {
			g.Priority = x.priority(g)
		}
	}
	x.nodesChanged = true
	x.retry(q.Name)
}

// retry requests a round, and marks the waiting groups of a queue, so that this round tries them. Other waiting groups
// are tried again in the next full round.
func (x *index) retry(name string) {
	for g := range x.waiting {
		g.changed = g.changed || g.queueName() == name
	}
	x.freed++
	x.wake()
}

// limitPods sets the pod limit of a queue from its status, into which the operator copies the queue's profile. While
// the status lacks the profile, it sets Barred instead.
func (q *queue) limitPods() {
	profile := q.spec.ResourceShapeProfile
	switch {
	case profile == "":
	case q.shape == nil || q.shape.Profile != profile:
		q.Barred = fmt.Sprintf("the largest size of a pod of queue %s is not known: the operator has not read its resourceShapeProfile %s in the "+
			"ConfigMap %s/%s", q.Name, profile, scheduling.ResourceShapesNamespace, scheduling.ResourceShapes)
	default:
		q.PodLimit = podspec.Amounts(q.shape.Requests)
	}
}

func (x *index) queueGone(q *scheduling.Queue) {
	delete(x.queues, q.Name)
	x.retry(q.Name)
}

// poolOf returns the nodes that a queue may use. If there is no such queue, it returns nil, which allows all nodes.
func (x *index) poolOf(queueName string) *sites.Pool {
	if q := x.queues[queueName]; q != nil {
		return q.pool
	}
	return nil
}

// priority returns the priority of a group, limited to the bounds of its queue.
func (x *index) priority(g *group) int32 {
	priority, q := g.spec.Spec.Priority, x.queues[g.queueName()]
	if q == nil || q.spec.GroupPriority == nil {
		return priority
	}
	bounds := q.spec.GroupPriority
	if bounds.Min != nil {
		priority = max(priority, *bounds.Min)
	}
	if bounds.Max != nil {
		priority = min(priority, *bounds.Max)
	}
	return priority
}

// alike reports whether two versions of a node have the same room for the same pods.
func alike(old, node *corev1.Node) bool {
	return old.Spec.Unschedulable == node.Spec.Unschedulable && apiequality.Semantic.DeepEqual(old.Labels, node.Labels) &&
		apiequality.Semantic.DeepEqual(old.Spec.Taints, node.Spec.Taints) &&
		apiequality.Semantic.DeepEqual(old.Status.Allocatable, node.Status.Allocatable)
}

// roomMade requests a round that tries all waiting groups. nodes is true if nodes have changed.
func (x *index) roomMade(nodes bool) {
	x.nodesChanged = x.nodesChanged || nodes
	x.freed++
	x.wake()
}

// capacities computes the sites and, for each queue, the total capacity of the nodes that it may use.
func (x *index) capacities(nodes []*corev1.Node, topologyLabel string) {
	x.nodesChanged = false
	// A lister returns the nodes in random order.
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	x.sites = sites.New(nodes, topologyLabel)
	for _, q := range x.queues {
		q.Capacity = core.Resources{}
		for _, n := range nodes {
			if q.pool.Allows(n) {
				for name, v := range podspec.Amounts(n.Status.Allocatable) {
					q.Capacity[name] += v
				}
			}
		}
	}
}
