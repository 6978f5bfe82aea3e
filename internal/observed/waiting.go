package observed

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// Waiter is a group with pods that wait for a node, or a waiting pod without a group.
type Waiter struct {
	// Name is NAMESPACE/NAME.
	Name string
	// Pods is the number of waiting pods.
	Pods     int
	Priority int32
	Created  time.Time
	// Why is the scheduler's message about why the group or pod waits; empty until the scheduler has tried it.
	Why   string
	class int
}

// Classes of waiters, in the order in which the scheduler tries them.
const (
	classIncomplete = iota // a running gang that lacks pods
	classReserved          // a group for which the scheduler reserves room
	classInOrder           // all other waiters
)

// Waiters returns the waiters of a queue, in the order in which the scheduler is likely to try them. pods are the pods
// without a node. A pod with a group waits in the group's queue. Pods that are being deleted, and pods of groups that
// groups does not contain, are left out.
func Waiters(queue string, groups []*scheduling.PodGroup, pods []*corev1.Pod) []Waiter {
	byName := make(map[string]*scheduling.PodGroup, len(groups))
	for _, g := range groups {
		byName[g.Namespace+"/"+g.Name] = g
	}
	waiting := map[*scheduling.PodGroup][]*corev1.Pod{}
	var all []Waiter
	for _, p := range pods {
		if p.DeletionTimestamp != nil {
			continue
		}
		if name := p.Labels[scheduling.LabelGroupName]; name != "" {
			if g := byName[p.Namespace+"/"+name]; g != nil {
				waiting[g] = append(waiting[g], p)
			}
			continue
		}
		if cmp.Or(p.Labels[scheduling.LabelQueue], scheduling.DefaultQueue) == queue {
			all = append(all, Waiter{Name: p.Namespace + "/" + p.Name, class: classInOrder, Pods: 1, Created: p.CreationTimestamp.Time, Why: whyPod(p)})
		}
	}
	for g, pods := range waiting {
		if cmp.Or(g.Spec.Queue, scheduling.DefaultQueue) == queue {
			all = append(all, waiterOf(g, pods))
		}
	}
	slices.SortFunc(all, func(a, b Waiter) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(b.Priority, a.Priority), a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	return all
}

func waiterOf(g *scheduling.PodGroup, pods []*corev1.Pod) Waiter {
	w := Waiter{Name: g.Namespace + "/" + g.Name, class: classInOrder, Pods: len(pods), Priority: g.Spec.Priority, Created: g.CreationTimestamp.Time}
	c := Scheduled(g)
	w.Why = c.Message
	switch {
	case c.Status == metav1.ConditionTrue: // the missing pods' conditions contain the reason
		w.Why = whyPod(slices.MinFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) }))
		bound := g.Status.Pending + g.Status.Running + g.Status.Unknown - int32(len(pods))
		if bound+g.Status.Succeeded < g.Spec.MinMember {
			w.class = classIncomplete
		}
	case c.Reason == scheduling.ReasonPreempting, c.Reason == scheduling.ReasonReserved:
		w.class = classReserved
	}
	return w
}

// whyPod returns the scheduler's message about a waiting pod; empty if there is none.
func whyPod(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

// Scheduled returns the condition GroupScheduled of a group; the zero value if it is missing.
func Scheduled(g *scheduling.PodGroup) scheduling.PodGroupCondition {
	for _, c := range g.Status.Conditions {
		if c.Type == scheduling.GroupScheduled {
			return c
		}
	}
	return scheduling.PodGroupCondition{}
}

// maxNamed is the largest number of waiters or of replicas that a text names.
const maxNamed = 3

// Place returns as text the position of the waiter with the given name, NAMESPACE/NAME, and the names of the first
// waiters ahead of it; empty if it does not wait. partial is true if the user may see only some of the waiters.
func Place(name string, waiting []Waiter, partial bool) string {
	at := slices.IndexFunc(waiting, func(w Waiter) bool { return w.Name == name })
	if at < 0 {
		return ""
	}
	text := fmt.Sprintf("%d of %d that wait", at+1, len(waiting))
	if partial {
		text += " and that you may see"
	}
	if at == 0 {
		return text
	}
	var ahead []string
	for _, w := range waiting[:min(at, maxNamed)] {
		ahead = append(ahead, w.Name)
	}
	text += ", behind " + strings.Join(ahead, ", ")
	if more := at - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Running returns the groups of a queue that have bound pods, the highest priority first, then the oldest first.
func Running(queue string, groups []*scheduling.PodGroup) []*scheduling.PodGroup {
	var some []*scheduling.PodGroup
	for _, g := range groups {
		if cmp.Or(g.Spec.Queue, scheduling.DefaultQueue) == queue && (g.Status.Running > 0 || len(g.Status.Allocated) > 0) {
			some = append(some, g)
		}
	}
	slices.SortFunc(some, func(a, b *scheduling.PodGroup) int {
		return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return some
}
