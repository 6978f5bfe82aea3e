package queue

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

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/cli/view"
)

func table(queues []scheduling.Queue, now time.Time) view.Table {
	t := view.Table{Header: []string{"NAME", "PRIORITY", "OPEN", "GROUPS", "PENDING", "RUNNING", "AGE", "USED"}, Text: true}
	for i := range queues {
		q := &queues[i]
		open := view.Cell{Text: "yes", Colour: view.Good}
		if q.Spec.Closed {
			open = view.Cell{Text: "no", Colour: view.Wait}
		}
		row := append(view.Plainly(q.Name, fmt.Sprint(q.Spec.Priority)), open)
		row = append(row, view.Plainly(fmt.Sprint(q.Status.PodGroups.Total), fmt.Sprint(q.Status.Pods.Pending), fmt.Sprint(q.Status.Pods.Running),
			view.Age(q.CreationTimestamp.Time, now), used(q))...)
		t.Rows = append(t.Rows, row)
	}
	return t
}

// runningGroups returns a table of groups with bound pods.
func runningGroups(groups []*scheduling.PodGroup, now time.Time) view.Table {
	if len(groups) == 0 {
		return view.Table{Rows: [][]view.Cell{view.Plainly("none")}}
	}
	t := view.Table{Header: []string{"GROUP", "RUNNING", "PRIORITY", "AGE", "ALLOCATED"}, Text: true}
	for _, g := range groups {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(g.Status.Allocated)) {
			amount := g.Status.Allocated[name]
			parts = append(parts, amount.String()+" "+string(name))
		}
		t.Rows = append(t.Rows, view.Plainly(g.Namespace+"/"+g.Name, fmt.Sprint(g.Status.Running), fmt.Sprint(g.Spec.Priority),
			view.Age(g.CreationTimestamp.Time, now), cmp.Or(strings.Join(parts, ", "), "-")))
	}
	return t
}

// used returns the queue's usage as text, for each resource that it uses or for which it has a quota.
func used(q *scheduling.Queue) string {
	var parts []string
	for _, name := range resourcesOf(q) {
		have := q.Status.Allocated[name]
		part := fmt.Sprintf("%s %s", name, have.String())
		if limit, ok := q.Spec.Quota.Requests[name]; ok {
			part += "/" + limit.String()
		} else if have.IsZero() {
			continue
		}
		parts = append(parts, part)
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

// resourcesOf returns the sorted names of the resources that a queue uses or for which it has a quota.
func resourcesOf(q *scheduling.Queue) []corev1.ResourceName {
	names := slices.Concat(slices.Collect(maps.Keys(q.Status.Allocated)), slices.Collect(maps.Keys(q.Spec.Quota.Requests)))
	slices.Sort(names)
	return slices.Compact(names)
}

// describe renders a queue, up to and including the heading of its waiting groups. The caller appends the groups.
func describe(q *scheduling.Queue, style view.Style, width int) []string {
	lines := []string{style.Paint(view.Bold, "queue/"+q.Name)}
	facts := view.Table{Text: true, Rows: [][]view.Cell{
		view.Plainly("Priority", fmt.Sprint(q.Spec.Priority)),
		view.Plainly("Open", map[bool]string{false: "yes", true: "no: no new group starts"}[q.Spec.Closed]),
		view.Plainly("Preemptible", map[bool]string{true: "by queues of higher priority", false: "no"}[q.Spec.Preemptible == nil || *q.Spec.Preemptible]),
	}}
	if q.Spec.MaxDuration != "" {
		facts.Rows = append(facts.Rows, view.Plainly("Max duration", q.Spec.MaxDuration))
	}
	if q.Spec.ResourceShapeProfile != "" {
		facts.Rows = append(facts.Rows, view.Plainly("Largest pod", largestPod(q)))
	}
	if s := q.Spec.NodeSelector; s != nil {
		facts.Rows = append(facts.Rows, view.Plainly("Nodes", metav1.FormatLabelSelector(s)))
	}
	facts.Rows = append(facts.Rows, view.Plainly("Namespaces", namespacesOf(q)))
	p := q.Status.Pods
	facts.Rows = append(facts.Rows, view.Plainly("Pods", fmt.Sprintf("%d running, %d pending, %d succeeded, %d failed", p.Running, p.Pending, p.Succeeded, p.Failed)))
	lines = append(lines, facts.Lines(style, "  ", width)...)
	lines = append(lines, "", style.Paint(view.Bold, "Used"))
	lines = append(lines, usage(q).Lines(style, "  ", width)...)
	return append(lines, "", style.Paint(view.Bold, "Waiting"))
}

// largestPod returns the largest requests that the queue's profile allows for a pod, as text, or why they are not
// known.
func largestPod(q *scheduling.Queue) string {
	profile := q.Spec.ResourceShapeProfile
	if shape := q.Status.ResourceShape; shape != nil && shape.Profile == profile {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(shape.Requests)) {
			limit := shape.Requests[name]
			parts = append(parts, limit.String()+" "+string(name))
		}
		return fmt.Sprintf("%s (profile %s)", strings.Join(parts, ", "), profile)
	}
	for _, c := range q.Status.Conditions {
		if c.Type == scheduling.QueueShapeKnown && c.Message != "" {
			return c.Message
		}
	}
	return fmt.Sprintf("not known yet (profile %s): is the operator running?", profile)
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

// usage returns a table with a row for each resource that a queue uses or for which it has a quota. The row has a bar
// if there is a quota.
func usage(q *scheduling.Queue) view.Table {
	t := view.Table{}
	for _, name := range resourcesOf(q) {
		used := q.Status.Allocated[name]
		limit, ok := q.Spec.Quota.Requests[name]
		if !ok {
			t.Rows = append(t.Rows, view.Plainly(string(name), used.String(), "no quota"))
			continue
		}
		text, colour := bar(used, limit)
		t.Rows = append(t.Rows, []view.Cell{{Text: string(name)}, {Text: used.String() + " of " + limit.String()}, {Text: text, Colour: colour}})
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
