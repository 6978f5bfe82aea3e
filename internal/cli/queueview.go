package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/cli/view"
)

func queueTable(queues []scheduling.Queue, now time.Time) view.Table {
	t := view.Table{Header: []string{"NAME", "PRIORITY", "OPEN", "GROUPS", "PENDING", "RUNNING", "CPU", "AGE"}}
	for i := range queues {
		q := &queues[i]
		open := view.Cell{Text: "yes", Colour: view.Good}
		if q.Spec.Closed {
			open = view.Cell{Text: "no", Colour: view.Wait}
		}
		row := append(view.Plainly(q.Name, fmt.Sprint(q.Spec.Priority)), open)
		row = append(row, view.Plainly(fmt.Sprint(q.Status.PodGroups.Total), fmt.Sprint(q.Status.Pods.Pending), fmt.Sprint(q.Status.Pods.Running),
			ofQuota(q, corev1.ResourceCPU), ageOf(q, now))...)
		t.Rows = append(t.Rows, row)
	}
	return t
}

// ofQuota is what a queue uses of a resource, of what it may.
func ofQuota(q *scheduling.Queue, name corev1.ResourceName) string {
	used := q.Status.Allocated[name]
	if limit, ok := q.Spec.Quota.Requests[name]; ok {
		return used.String() + "/" + limit.String()
	}
	return used.String()
}

func ageOf(o metav1.Object, now time.Time) string {
	return duration.HumanDuration(now.Sub(o.GetCreationTimestamp().Time))
}

// queueDescription shows a queue, and the groups that wait in it in their order.
func queueDescription(q *scheduling.Queue, groups []scheduling.PodGroup, now time.Time, style view.Style) []string {
	lines := []string{style.Paint(view.Bold, "queue/"+q.Name)}
	facts := view.Table{Rows: [][]view.Cell{
		view.Plainly("Priority", fmt.Sprint(q.Spec.Priority)),
		view.Plainly("Open", map[bool]string{false: "yes", true: "no: no new group starts"}[q.Spec.Closed]),
		view.Plainly("Preemptible", map[bool]string{true: "by queues of higher priority", false: "no"}[q.Spec.Preemptible == nil || *q.Spec.Preemptible]),
	}}
	if q.Spec.MaxDuration != "" {
		facts.Rows = append(facts.Rows, view.Plainly("Longest", q.Spec.MaxDuration))
	}
	if s := q.Spec.NodeSelector; s != nil {
		facts.Rows = append(facts.Rows, view.Plainly("Nodes", metav1.FormatLabelSelector(s)))
	}
	facts.Rows = append(facts.Rows, view.Plainly("Namespaces", namespacesOf(q)))
	p := q.Status.Pods
	facts.Rows = append(facts.Rows, view.Plainly("Pods", fmt.Sprintf("%d running, %d pending, %d succeeded, %d failed", p.Running, p.Pending, p.Succeeded, p.Failed)))
	lines = append(lines, facts.Lines(style, "  ", 0)...)
	lines = append(lines, "", style.Paint(view.Bold, "Used"))
	lines = append(lines, usage(q).Lines(style, "  ", 0)...)
	lines = append(lines, "", style.Paint(view.Bold, "Waiting"))
	return append(lines, waitingTable(groups, now, style)...)
}

func namespacesOf(q *scheduling.Queue) string {
	switch s := q.Spec.NamespaceSelector; {
	case s == nil:
		return "none; users with the right to use it"
	case len(s.MatchLabels)+len(s.MatchExpressions) == 0:
		return "all"
	default:
		return metav1.FormatLabelSelector(s)
	}
}

// usage has a bar for each resource that has a quota.
func usage(q *scheduling.Queue) view.Table {
	names := map[string]bool{}
	for name := range q.Status.Allocated {
		names[string(name)] = true
	}
	for name := range q.Spec.Quota.Requests {
		names[string(name)] = true
	}
	t := view.Table{}
	for _, name := range sortedKeysOf(names) {
		used := q.Status.Allocated[corev1.ResourceName(name)]
		limit, ok := q.Spec.Quota.Requests[corev1.ResourceName(name)]
		if !ok {
			t.Rows = append(t.Rows, view.Plainly(name, used.String(), "no quota"))
			continue
		}
		text, colour := bar(used, limit)
		t.Rows = append(t.Rows, []view.Cell{{Text: name}, {Text: used.String() + " of " + limit.String()}, {Text: text, Colour: colour}})
	}
	if len(t.Rows) == 0 {
		t.Rows = append(t.Rows, view.Plainly("nothing"))
	}
	return t
}

const barWidth = 20

func bar(used, limit resource.Quantity) (string, view.Colour) {
	share := 0.0
	if l := limit.AsApproximateFloat64(); l > 0 {
		share = used.AsApproximateFloat64() / l
	}
	full := min(barWidth, int(share*barWidth+0.5))
	colour := view.Good
	if share >= 0.9 {
		colour = view.Wait
	}
	return fmt.Sprintf("[%s%s] %3.0f %%", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), 100*share), colour
}

// waitingTable lists the groups that are not scheduled, the next one first.
func waitingTable(groups []scheduling.PodGroup, now time.Time, style view.Style) []string {
	waiting := slices.DeleteFunc(slices.Clone(groups), func(g scheduling.PodGroup) bool {
		return g.Status.Pending == 0 || scheduled(&g).Status == metav1.ConditionTrue
	})
	slices.SortFunc(waiting, func(a, b scheduling.PodGroup) int {
		if a.Spec.Priority != b.Spec.Priority {
			return int(b.Spec.Priority) - int(a.Spec.Priority)
		}
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	if len(waiting) == 0 {
		return []string{"  nobody"}
	}
	t := view.Table{Header: []string{"", "GROUP", "PODS", "PRIORITY", "AGE", "WHY"}}
	for i := range waiting {
		g := &waiting[i]
		c := scheduled(g)
		why := c.Message
		if why == "" {
			why = "not looked at yet"
		}
		t.Rows = append(t.Rows, view.Plainly(fmt.Sprint(i+1), g.Namespace+"/"+g.Name, fmt.Sprint(g.Spec.MinMember), fmt.Sprint(g.Spec.Priority), ageOf(g, now), why))
	}
	return t.Lines(style, "  ", 0)
}

func scheduled(g *scheduling.PodGroup) scheduling.PodGroupCondition {
	for _, c := range g.Status.Conditions {
		if c.Type == scheduling.GroupScheduled {
			return c
		}
	}
	return scheduling.PodGroupCondition{}
}

func sortedKeysOf(m map[string]bool) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
