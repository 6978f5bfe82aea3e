package cli

import (
	"context"
	"fmt"
	"regexp"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/cli/view"
)

// events lists the events about one object, the oldest first. Those of a pod outlive it, so its name is asked for where
// uid is empty.
func (c *cluster) events(ctx context.Context, namespace, name string, uid types.UID) ([]corev1.Event, error) {
	about := fields.Set{"involvedObject.name": name}
	if uid != "" {
		about["involvedObject.uid"] = string(uid)
	}
	list, err := c.core.Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: about.String()})
	if err != nil {
		return nil, fmt.Errorf("listing events: %w", err)
	}
	sort.SliceStable(list.Items, func(a, b int) bool {
		return view.EventTime(&list.Items[a]).Before(view.EventTime(&list.Items[b]))
	})
	return list.Items, nil
}

// history is what is still known of attempts whose pods are gone.
type history struct {
	events   []corev1.Event
	statuses map[string]*batch.ReplicaStatus
}

func (l *logPrinter) history(ctx context.Context) *history {
	h := &history{statuses: map[string]*batch.ReplicaStatus{}}
	for _, task := range l.job.status().Tasks {
		for k := range task.Replicas {
			h.statuses[task.Replicas[k].Name] = &task.Replicas[k]
		}
	}
	// Without events there is the status still.
	h.events, _ = l.cluster.events(ctx, l.job.GetNamespace(), l.job.GetName(), l.job.GetUID())
	return h
}

// ends says what events tell of the ends of a replica's earlier attempts, one line each.
func (h *history) ends(job, name string) []string {
	var ends []string
	for i := range h.events {
		e := &h.events[i]
		switch batch.Reason(e.Reason) {
		case batch.EventReplicaRestarted, batch.EventReplicaDisrupted:
		default:
			continue
		}
		if text := about(job, name, e.Message); text != "" {
			ends = append(ends, view.EventTime(e).UTC().Format(time.RFC3339)+" "+e.Reason+": "+text)
		}
	}
	return ends
}

// about is what an event says of one replica of a job, of which it may name several: "Restarting: a-w-0 ended …, a-w-1 ended ….".
// What it says may hold commas of its own.
func about(job, name, message string) string {
	_, list, found := strings.Cut(message, ": ")
	if !found {
		list = message
	}
	list = ", " + strings.TrimSuffix(list, ".")
	for clause := range strings.SplitSeq(list, ", "+job+"-") {
		clause = job + "-" + andMore.ReplaceAllString(clause, "")
		if clause == name || strings.HasPrefix(clause, name+" ") || strings.HasPrefix(clause, name+":") {
			return clause
		}
	}
	return ""
}

// andMore is how an event ends that does not name all replicas.
var andMore = regexp.MustCompile(` and \d+ more$`)

// tellEarlier names the attempts before the present one, whose pods are gone.
func (l *logPrinter) tellEarlier(r replica, h *history) {
	name := l.job.GetName() + "-" + r.String()
	ends := h.ends(l.job.GetName(), name)
	for _, end := range ends {
		l.lines.remark(r, "earlier attempt, its output is gone: "+end)
	}
	if s := h.statuses[name]; s != nil && s.UID != "" && int(s.Attempt) > len(ends) {
		l.lines.remark(r, fmt.Sprintf("this is attempt %d; no event tells of the end of %d before it", s.Attempt+1, int(s.Attempt)-len(ends)))
	}
}

// tellMissing names the selected replicas that have no pod.
func (l *logPrinter) tellMissing(present []*logPod, h *history) {
	has := map[int]bool{}
	for _, p := range present {
		has[p.index] = true
	}
	missing := map[string][]int{}
	for _, r := range l.selection.replicas() {
		if !has[r.index] {
			l.tellEarlier(r, h)
			missing[r.role] = append(missing[r.role], r.rank)
		}
	}
	for _, role := range l.selection.roles {
		if ranks := missing[role.role]; len(ranks) > 0 {
			fmt.Fprintf(l.ErrOut, "No pod, so no output: %s (the job is %s)\n", view.Several(role.role, ranks), orUnknown(string(l.job.status().Phase)))
		}
	}
}
