package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/observed"
	"tensorstack.dev/batch/internal/scheduler/core"
)

// Bar is the usage of a resource by a queue relative to its quota.
type Bar struct {
	Name, Text string
	// Share is a percentage of at most 100; -1 if there is no quota.
	Share float64
	Tone  Tone
}

// GroupRow is the row of a PodGroup that runs in a queue. Name is NAMESPACE/NAME, and Href is the path of its job's
// page; empty if there is no such job or the user may not see it. Pods is the number of running pods. Uses is what its
// pods on nodes request, as text. Since is when the group was scheduled; zero if it is not known.
type GroupRow struct {
	Name, Href string
	Pods       int32
	Uses       string
	Since      time.Time
	Priority   int32
}

// WaiterRow is the row of a PodGroup, or of a pod without one, that waits in a queue. Place counts from 1. Name and
// Href are as in GroupRow, and Pods is the number of waiting pods.
type WaiterRow struct {
	Place      int
	Name, Href string
	Pods       int
	Priority   int32
	Created    time.Time
	Why        string
}

// QueueCard shows one queue on the page of queues: its properties, its quota, and its running and waiting groups.
type QueueCard struct {
	ID, Name string
	Priority int32
	// Notes are short descriptions of the queue's properties: closed, longest duration, not preemptible, selected
	// nodes.
	Notes []string
	Bars  []Bar
	// Dominant is the share by which the scheduler sorts the queues, with its resource, as text; empty if the queue
	// uses nothing or the share is unknown.
	Dominant string
	Running  []GroupRow
	Waiting  []WaiterRow
	// MoreRunning and MoreWaiting are the numbers of groups that are not listed.
	MoreRunning, MoreWaiting int
}

// QueuesInput holds the objects from which the page of queues is computed.
type QueuesInput struct {
	Queues  []*scheduling.Queue
	Groups  []*scheduling.PodGroup
	Waiting []*corev1.Pod
	Nodes   []*corev1.Node
	// Paths holds the paths of the pages of all jobs that the user may see.
	Paths  map[string]bool
	Hidden []Hidden
}

// QueuesPage shows the queues with their groups.
type QueuesPage struct {
	Queues []QueueCard
	Hidden []Hidden
}

// listedGroups is the largest number of running groups, and of waiting groups, that are listed per queue.
const listedGroups = 50

// Queues returns the queues in descending order of priority, and by name if the priority is the same.
func Queues(in *QueuesInput) QueuesPage {
	p := QueuesPage{Hidden: in.Hidden}
	queues := slices.Clone(in.Queues)
	slices.SortFunc(queues, func(a, b *scheduling.Queue) int {
		return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), strings.Compare(a.Name, b.Name))
	})
	hrefs := in.hrefs()
	for _, q := range queues {
		p.Queues = append(p.Queues, in.card(q, hrefs))
	}
	return p
}

// hrefs returns the paths of the pages of the jobs that own groups, by NAMESPACE/NAME of the group. It leaves out jobs
// that are not in Paths. It uses the owners, because jobs of several kinds can have the same name.
func (in *QueuesInput) hrefs() map[string]string {
	all := map[string]string{}
	for _, g := range in.Groups {
		owner := metav1.GetControllerOf(g)
		if owner == nil {
			continue
		}
		if kind := KindOf(strings.ToLower(owner.Kind)); kind != nil {
			if path := JobPath(kind, g.Namespace, owner.Name); in.Paths[path] {
				all[g.Namespace+"/"+g.Name] = path
			}
		}
	}
	return all
}

func add(sum, more corev1.ResourceList) {
	for name, q := range more {
		s := sum[name]
		s.Add(q)
		sum[name] = s
	}
}

func (in *QueuesInput) card(q *scheduling.Queue, hrefs map[string]string) QueueCard {
	c := QueueCard{ID: "queue-" + q.Name, Name: q.Name, Priority: q.Spec.Priority, Notes: notes(q), Bars: bars(q), Dominant: in.dominant(q)}
	for _, g := range observed.Running(q.Name, in.Groups) {
		name := g.Namespace + "/" + g.Name
		c.Running = append(c.Running, GroupRow{Name: name, Href: hrefs[name], Pods: g.Status.Running, Uses: quantities(g.Status.Allocated),
			Since: observed.Scheduled(g).LastTransitionTime.Time, Priority: g.Spec.Priority})
	}
	slices.SortFunc(c.Running, func(a, b GroupRow) int { return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Name, b.Name)) })
	for i, w := range observed.Waiters(q.Name, in.Groups, in.Waiting) {
		c.Waiting = append(c.Waiting, WaiterRow{Place: i + 1, Name: w.Name, Href: hrefs[w.Name], Pods: w.Pods, Priority: w.Priority, Created: w.Created,
			Why: cmp.Or(w.Why, "not tried yet")})
	}
	c.MoreRunning, c.MoreWaiting = max(0, len(c.Running)-listedGroups), max(0, len(c.Waiting)-listedGroups)
	c.Running, c.Waiting = c.Running[:min(listedGroups, len(c.Running))], c.Waiting[:min(listedGroups, len(c.Waiting))]
	return c
}

// dominant returns the dominant share of a queue as text; see QueueCard.Dominant.
func (in *QueuesInput) dominant(q *scheduling.Queue) string {
	whole := core.Queue{Quota: amounts(q.Spec.Quota.Requests), Capacity: core.Resources{}}
	of := map[bool]string{false: "the cluster's", true: "its nodes'"}[q.Spec.NodeSelector != nil]
	selector := labels.Everything()
	if s, err := metav1.LabelSelectorAsSelector(q.Spec.NodeSelector); err == nil && q.Spec.NodeSelector != nil {
		selector = s
	}
	for _, n := range in.Nodes {
		if selector.Matches(labels.Set(n.Labels)) {
			for name, v := range amounts(n.Status.Allocatable) {
				whole.Capacity[name] += v
			}
		}
	}
	used, largest, text := amounts(q.Status.Allocated), 0.0, ""
	for _, name := range slices.Sorted(maps.Keys(used)) {
		_, bound := whole.Quota[name]
		if !bound && len(in.Nodes) == 0 { // the user may not list nodes, so the capacity is unknown
			continue
		}
		if share := whole.Share(core.Resources{name: used[name]}); share > largest {
			largest, text = share, fmt.Sprintf("dominant share %.0f %%: %s %s", 100*share, map[bool]string{true: "its quota of", false: of}[bound], name)
		}
	}
	return text
}

// amounts returns resources in the units of the scheduler: CPU in thousandths of a core, other resources unchanged.
func amounts(list corev1.ResourceList) core.Resources {
	all := core.Resources{}
	for name, q := range list {
		all[string(name)] = q.Value()
		if name == corev1.ResourceCPU {
			all[string(name)] = q.MilliValue()
		}
	}
	return all
}

func notes(q *scheduling.Queue) []string {
	var all []string
	if q.Spec.Closed {
		all = append(all, "closed: no new group starts")
	}
	if q.Spec.MaxDuration != "" && q.Spec.MaxDuration != "0" {
		all = append(all, "pods live at most "+q.Spec.MaxDuration)
	}
	if q.Spec.Preemptible != nil && !*q.Spec.Preemptible {
		all = append(all, "not preemptible")
	}
	if q.Spec.NodeSelector != nil {
		all = append(all, "nodes "+metav1.FormatLabelSelector(q.Spec.NodeSelector))
	}
	return all
}

// bars returns a bar for each resource that the queue uses or has a quota for, sorted by name. Resources with a quota
// come first.
func bars(q *scheduling.Queue) []Bar {
	names := slices.Concat(slices.Collect(maps.Keys(q.Status.Allocated)), slices.Collect(maps.Keys(q.Spec.Quota.Requests)))
	slices.Sort(names)
	var all []Bar
	for _, name := range slices.Compact(names) {
		used := q.Status.Allocated[name]
		b := Bar{Name: string(name), Text: amount(name, used), Share: -1, Tone: Quiet}
		if quota, ok := q.Spec.Quota.Requests[name]; ok {
			b.Text += " of " + amount(name, quota)
			b.Share, b.Tone = min(100, share(used, quota)), toneOfShare(share(used, quota))
		} else if used.IsZero() {
			continue
		}
		all = append(all, b)
	}
	slices.SortStableFunc(all, func(a, b Bar) int { return cmp.Compare(bounded(b), bounded(a)) })
	return all
}

// bounded returns 1 for a resource with a quota, and 0 for any other.
func bounded(b Bar) int {
	if b.Share < 0 {
		return 0
	}
	return 1
}

func toneOfShare(share float64) Tone {
	if share >= 90 {
		return Wait
	}
	return Busy
}

// share returns used as a percentage of whole, which can exceed 100. If whole is zero, it returns 0 if used is also
// zero, and otherwise 100.
func share(used, whole resource.Quantity) float64 {
	if w := whole.AsApproximateFloat64(); w > 0 {
		return round(100 * used.AsApproximateFloat64() / w)
	}
	if used.IsZero() {
		return 0
	}
	return 100
}

// amount returns a quantity as text: memory and ephemeral storage in Gi, CPU in cores, and other resources in the
// format of Kubernetes. It also uses this format for amounts that would otherwise be rounded to zero.
func amount(name corev1.ResourceName, q resource.Quantity) string {
	var text, unit string
	switch name {
	case corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		text, unit = strings.TrimSuffix(fmt.Sprintf("%.1f", q.AsApproximateFloat64()/(1<<30)), ".0"), " Gi"
	case corev1.ResourceCPU:
		text = strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.2f", q.AsApproximateFloat64()), "0"), ".")
	}
	if text == "" || strings.TrimPrefix(text, "-") == "0" && !q.IsZero() {
		return q.String()
	}
	return text + unit
}

// noBreak is the space between a number and its unit, which must stay on one line.
const noBreak = "\u00a0"

// quantities returns resources as text, without those that are zero: 4 cpu, 2 nvidia.com/gpu.
func quantities(list corev1.ResourceList) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if q := list[name]; !q.IsZero() {
			parts = append(parts, strings.ReplaceAll(amount(name, q), " ", noBreak)+noBreak+string(name))
		}
	}
	return strings.Join(parts, ", ")
}
