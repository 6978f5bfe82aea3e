package logs

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/output"
	"tensorstack.dev/batch/internal/cli/selection"
	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/observed"
)

// history describes attempts whose pods are deleted.
type history struct {
	// ends describes how earlier attempts ended, by the name of the replica's pod.
	ends map[string][]string
	// plain holds events about ended attempts that have no readable annotation with the ends, such as events of an
	// older operator.
	plain []corev1.Event
	// statuses holds the statuses of replicas, by the name of the replica's pod.
	statuses map[string]*batch.ReplicaStatus
}

func (l *printer) history(ctx context.Context) *history {
	// The error is ignored: without events the status still shows the number of attempts.
	events, _ := l.Cluster.Events(ctx, l.Job.GetNamespace(), l.Job.GetName(), l.Job.GetUID())
	h := newHistory(l.Job.Status(), events)
	for i := range h.plain {
		fmt.Fprintln(l.ErrOut, eventLine(&h.plain[i], h.plain[i].Message))
	}
	return h
}

func newHistory(status *batch.JobStatus, events []corev1.Event) *history {
	h := &history{ends: map[string][]string{}, statuses: map[string]*batch.ReplicaStatus{}}
	for _, task := range status.Tasks {
		for k := range task.Replicas {
			h.statuses[task.Replicas[k].Name] = &task.Replicas[k]
		}
	}
	for i := range events {
		e := &events[i]
		ends, about, listed := observed.Ends(e)
		if about && !listed {
			h.plain = append(h.plain, *e)
		}
		for _, end := range ends {
			h.ends[end.Replica] = append(h.ends[end.Replica], eventLine(e, end.String()))
		}
	}
	return h
}

// eventLine returns an event in one line, with words instead of its message.
func eventLine(e *corev1.Event, words string) string {
	return observed.EventTime(e).UTC().Format(time.RFC3339) + " " + e.Reason + ": " + words
}

// reportEarlier prints the replica's earlier attempts, whose pods are deleted, and how many of them have no event.
func (l *printer) reportEarlier(r selection.Replica, h *history) {
	name := l.Job.GetName() + "-" + r.String()
	ends := h.ends[name]
	for _, end := range ends {
		l.Remark(r, "earlier attempt, its output is gone: "+end)
	}
	if s := h.statuses[name]; s != nil && s.UID != "" && int(s.Attempt) > len(ends) && len(h.plain) == 0 {
		l.Remark(r, fmt.Sprintf("this is attempt %d; there are no events about the end of %d before it", s.Attempt+1, int(s.Attempt)-len(ends)))
	}
}

// reportMissing prints the earlier attempts of the selected replicas that have no pod, and the names of these replicas.
func (l *printer) reportMissing(present []*output.Pod, h *history) {
	has := map[int]bool{}
	for _, p := range present {
		has[p.Index] = true
	}
	missing := map[string][]int{}
	for _, r := range l.Selection.Replicas() {
		if !has[r.Index] {
			l.reportEarlier(r, h)
			missing[r.Role] = append(missing[r.Role], r.Rank)
		}
	}
	for _, role := range l.Selection.Roles {
		if ranks := missing[role.Name]; len(ranks) > 0 {
			fmt.Fprintf(l.ErrOut, "No output, because there is no pod: %s (the job is %s)\n", view.Several(role.Name, ranks), kit.OrNotStarted(l.Job.Status().Phase))
		}
	}
}
