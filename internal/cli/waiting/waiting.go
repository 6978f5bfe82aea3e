// Package waiting lists the groups that wait for nodes in a queue of the t9k-scheduler, with their order and reasons,
// and the place of a job among them. Start reading at List and Place.
package waiting

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/view"
)

// Waiter is a group with pods that wait for nodes, or a waiting pod without a group.
type Waiter struct {
	name     string
	class    int
	pods     int
	priority int32
	created  time.Time
	why      string
}

// These are the classes of waiters, in the order in which the scheduler tries them.
const (
	classIncomplete = iota // a running gang that lacks pods
	classReserved          // the scheduler reserves room for it
	classInOrder
)

var groupResource = scheduling.GroupVersion.WithResource("podgroups")

// waitingPods returns the pods of a namespace, or of all, that wait for the t9k-scheduler, in all queues.
func waitingPods(ctx context.Context, c *kit.Cluster, namespace string) ([]corev1.Pod, error) {
	list, err := c.Core.Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.Set{
		"spec.schedulerName": scheduling.SchedulerName, "spec.nodeName": "", "status.phase": string(corev1.PodPending)}.String()})
	if err != nil {
		return nil, fmt.Errorf("listing the pods that wait: %w", err)
	}
	return list.Items, nil
}

// waiters returns the waiters of a queue, the next one first. A pod with a group waits in the group's queue.
func waiters(queue string, groups []scheduling.PodGroup, pods []corev1.Pod) []Waiter {
	byName := make(map[string]*scheduling.PodGroup, len(groups))
	for i := range groups {
		byName[groups[i].Namespace+"/"+groups[i].Name] = &groups[i]
	}
	waiting := map[*scheduling.PodGroup][]*corev1.Pod{}
	var all []Waiter
	for i := range pods {
		p := &pods[i]
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
			all = append(all, Waiter{name: p.Namespace + "/" + p.Name, class: classInOrder, pods: 1, created: p.CreationTimestamp.Time, why: whyPod(p)})
		}
	}
	for g, pods := range waiting {
		if cmp.Or(g.Spec.Queue, scheduling.DefaultQueue) == queue {
			all = append(all, waiterOf(g, pods))
		}
	}
	slices.SortFunc(all, func(a, b Waiter) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(b.priority, a.priority), a.created.Compare(b.created), strings.Compare(a.name, b.name))
	})
	return all
}

func waiterOf(g *scheduling.PodGroup, pods []*corev1.Pod) Waiter {
	w := Waiter{name: g.Namespace + "/" + g.Name, class: classInOrder, pods: len(pods), priority: g.Spec.Priority, created: g.CreationTimestamp.Time}
	c := scheduled(g)
	w.why = c.Message
	switch {
	case c.Status == metav1.ConditionTrue: // the missing pods' conditions hold the reason
		w.why = whyPod(slices.MinFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) }))
		bound := g.Status.Pending + g.Status.Running + g.Status.Unknown - int32(len(pods))
		if bound+g.Status.Succeeded < g.Spec.MinMember {
			w.class = classIncomplete
		}
	case c.Reason == scheduling.ReasonPreempting, c.Reason == scheduling.ReasonReserved:
		w.class = classReserved
	}
	return w
}

// whyPod returns the scheduler's message about a waiting pod.
func whyPod(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

// Table renders waiters in their order.
func Table(waiting []Waiter, now time.Time, style view.Style, width int) []string {
	if len(waiting) == 0 {
		return []string{"  nobody"}
	}
	t := view.Table{Header: []string{"", "GROUP", "PODS", "PRIORITY", "AGE", "WHY"}, Text: true}
	for i, w := range waiting {
		t.Rows = append(t.Rows, view.Plainly(fmt.Sprint(i+1), w.name, fmt.Sprint(w.pods), fmt.Sprint(w.priority), view.Age(w.created, now),
			cmp.Or(w.why, "not tried yet")))
	}
	return t.Lines(style, "  ", width)
}

// Groups are the groups of a queue.
type Groups struct {
	// Waiting lists the groups with pods that wait, the next one first.
	Waiting []Waiter
	// Running lists the groups with pods that are bound, those of the highest priority first, then the oldest.
	Running []scheduling.PodGroup
	// Within is the namespace of the groups if the user may not list those of all namespaces; otherwise empty.
	Within string
}

// List returns the groups of a queue.
func List(ctx context.Context, c *kit.Cluster, queue string) (*Groups, error) {
	list, err := listIn(ctx, c, metav1.NamespaceAll, queue)
	if apierrors.IsForbidden(err) {
		return listIn(ctx, c, c.Namespace, queue)
	}
	return list, err
}

func listIn(ctx context.Context, c *kit.Cluster, namespace, queue string) (*Groups, error) {
	groups, err := listGroups(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	pods, err := waitingPods(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	return &Groups{Waiting: waiters(queue, groups, pods), Running: running(queue, groups), Within: namespace}, nil
}

// running returns the groups of a queue that have bound pods.
func running(queue string, groups []scheduling.PodGroup) []scheduling.PodGroup {
	var some []scheduling.PodGroup
	for i := range groups {
		if g := &groups[i]; cmp.Or(g.Spec.Queue, scheduling.DefaultQueue) == queue && (g.Status.Running > 0 || g.Status.Allocated != nil) {
			some = append(some, *g)
		}
	}
	slices.SortFunc(some, func(a, b scheduling.PodGroup) int {
		return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return some
}

// listGroups returns the groups of a namespace, or of all.
func listGroups(ctx context.Context, c *kit.Cluster, namespace string) ([]scheduling.PodGroup, error) {
	list, err := c.Objects.Resource(groupResource).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing groups: %w", err)
	}
	groups := make([]scheduling.PodGroup, len(list.Items))
	for i := range list.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &groups[i]); err != nil {
			return nil, fmt.Errorf("reading group %s: %w", list.Items[i].GetName(), err)
		}
	}
	return groups, nil
}

func scheduled(g *scheduling.PodGroup) scheduling.PodGroupCondition {
	for _, c := range g.Status.Conditions {
		if c.Type == scheduling.GroupScheduled {
			return c
		}
	}
	return scheduling.PodGroupCondition{}
}

// namedAhead is the largest number of waiters ahead of a job that are named.
const namedAhead = 3

// placeOf returns a group's place among the waiters and the waiters ahead of it, as text; empty if it does not wait.
func placeOf(name string, waiting []Waiter) string {
	at := slices.IndexFunc(waiting, func(w Waiter) bool { return w.name == name })
	if at < 0 {
		return ""
	}
	text := fmt.Sprintf("%d of %d that wait", at+1, len(waiting))
	if at == 0 {
		return text
	}
	var ahead []string
	for _, w := range waiting[:min(at, namedAhead)] {
		ahead = append(ahead, w.name)
	}
	text += ", behind " + strings.Join(ahead, ", ")
	if more := at - namedAhead; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Place returns a job's place among the waiters of its queue as text; empty if it does not wait.
func Place(ctx context.Context, c *kit.Cluster, j *kit.Job, queue string) (string, error) {
	pods, err := waitingPods(ctx, c, metav1.NamespaceAll)
	if err != nil {
		return "", err
	}
	own := func(p corev1.Pod) bool {
		return p.Namespace == j.GetNamespace() && p.Labels[scheduling.LabelGroupName] == j.GetName()
	}
	if !slices.ContainsFunc(pods, own) {
		return "", nil
	}
	groups, err := listGroups(ctx, c, metav1.NamespaceAll)
	if err != nil {
		return "", err
	}
	return placeOf(j.GetNamespace()+"/"+j.GetName(), waiters(queue, groups, pods)), nil
}
