package top

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/observed"
)

// unknown is the user name for pods without a recorded requester.
const unknown = "(not recorded)"

// holder is a node, a queue or a user, with the sums of the pods that belong to it and occupy a node.
type holder struct {
	name string
	pods int
	// requested is the sum of the pods' requests. room is the allocatable amount or the quota; nil if there is no
	// limit.
	requested, room corev1.ResourceList
	// note is an additional remark, such as "cordoned".
	note string
}

// holders maps the names of nodes, queues or users to their sums.
type holders map[string]*holder

func (h holders) get(name string) *holder {
	if h[name] == nil {
		h[name] = &holder{name: name, requested: corev1.ResourceList{}}
	}
	return h[name]
}

// add adds a pod to a holder.
func (h holders) add(name string, requests corev1.ResourceList) {
	to := h.get(name)
	to.pods++
	for resource, amount := range requests {
		sum := to.requested[resource]
		sum.Add(amount)
		to.requested[resource] = sum
	}
}

// cluster contains the data that top shows.
type cluster struct{ nodes, queues, users holders }

// count adds up the requests of all pods that occupy a node. groups determine the queue and the user of their pods.
func count(nodes []corev1.Node, queues []scheduling.Queue, groups []scheduling.PodGroup, pods []corev1.Pod) cluster {
	c := cluster{holders{}, holders{}, holders{}}
	for i := range nodes {
		n := c.nodes.get(nodes[i].Name)
		n.room, n.note = nodes[i].Status.Allocatable, nodeNote(&nodes[i])
	}
	for i := range queues {
		q := c.queues.get(queues[i].Name)
		q.room = queues[i].Spec.Quota.Requests
		if queues[i].Spec.Closed {
			q.note = "closed"
		}
	}
	for _, d := range observed.Demands(pointers(pods), pointers(groups)) {
		c.nodes.add(d.Pod.Spec.NodeName, d.Requests)
		if d.Queue != "" {
			c.queues.add(d.Queue, d.Requests)
		}
		c.users.add(cmp.Or(d.User, unknown), d.Requests)
	}
	return c
}

func pointers[T any](values []T) []*T {
	all := make([]*T, len(values))
	for i := range values {
		all[i] = &values[i]
	}
	return all
}

// nodeNote returns "cordoned", "not ready" or both as one text; empty if the node is schedulable and ready.
func nodeNote(n *corev1.Node) string {
	var notes []string
	if n.Spec.Unschedulable {
		notes = append(notes, "cordoned")
	}
	if !observed.Ready(n) {
		notes = append(notes, "not ready")
	}
	return strings.Join(notes, ", ")
}

// columns returns the resources to show: every extended resource that a node has, a quota names or a pod requests, then
// CPU and memory.
func (c *cluster) columns() []corev1.ResourceName {
	extended := map[corev1.ResourceName]bool{}
	for _, all := range []holders{c.nodes, c.queues, c.users} {
		for _, h := range all {
			for _, list := range []corev1.ResourceList{h.requested, h.room} {
				for name := range list {
					if strings.Contains(string(name), "/") {
						extended[name] = true
					}
				}
			}
		}
	}
	return append(slices.Sorted(maps.Keys(extended)), corev1.ResourceCPU, corev1.ResourceMemory)
}

// table returns the holders as a table, with a row for their sum if there are several. what is the header of the first
// column.
func (h holders) table(what string, columns []corev1.ResourceName) view.Table {
	t := view.Table{Header: []string{what, "PODS"}, Text: true}
	for _, name := range columns {
		t.Header = append(t.Header, strings.ToUpper(string(name)))
	}
	t.Header = append(t.Header, "")
	sum := &holder{name: "all", requested: corev1.ResourceList{}, room: corev1.ResourceList{}}
	bounded := len(h) > 0
	for _, name := range slices.Sorted(maps.Keys(h)) {
		one := h[name]
		t.Rows = append(t.Rows, one.row(columns))
		sum.pods += one.pods
		bounded = bounded && one.room != nil
		for _, resource := range columns {
			add(sum.requested, resource, one.requested[resource])
			add(sum.room, resource, one.room[resource])
		}
	}
	if len(h) > 1 {
		if !bounded {
			sum.room = nil
		}
		t.Rows = append(t.Rows, sum.row(columns))
	}
	return t
}

func add(to corev1.ResourceList, name corev1.ResourceName, amount resource.Quantity) {
	sum := to[name]
	sum.Add(amount)
	to[name] = sum
}

func (h *holder) row(columns []corev1.ResourceName) []view.Cell {
	cells := view.Plainly(h.name, fmt.Sprint(h.pods))
	for _, name := range columns {
		cells = append(cells, h.cell(name))
	}
	return append(cells, view.Cell{Text: h.note, Colour: view.Wait})
}

// cell returns the requested amount of a resource, the limit and the percentage, as text.
func (h *holder) cell(name corev1.ResourceName) view.Cell {
	used := h.requested[name]
	room, bounded := h.room[name]
	switch {
	case !bounded && used.IsZero():
		return view.Cell{Text: "-"}
	case !bounded:
		return view.Cell{Text: amount(name, used)}
	case room.IsZero() && used.IsZero():
		return view.Cell{Text: "-"}
	}
	share := 0.0
	if r := room.AsApproximateFloat64(); r > 0 {
		share = used.AsApproximateFloat64() / r
	}
	colour := view.Plain
	if share >= 0.9 {
		colour = view.Wait
	}
	return view.Cell{Text: fmt.Sprintf("%s/%s %3.0f%%", amount(name, used), amount(name, room), 100*share), Colour: colour}
}

// amount formats a quantity: memory in Gi, everything else unchanged.
func amount(name corev1.ResourceName, q resource.Quantity) string {
	if name == corev1.ResourceMemory {
		return fmt.Sprintf("%.1fGi", q.AsApproximateFloat64()/(1<<30))
	}
	return q.String()
}
