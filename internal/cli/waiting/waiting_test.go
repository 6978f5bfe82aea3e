package waiting

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/observed"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// groupOf returns a group with bound and waiting pods. Only the bound pods have a node.
func groupOf(name, queue string, age time.Duration, priority, least, bound, waiting int32, status metav1.ConditionStatus, reason, message string) scheduling.PodGroup {
	g := scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, CreationTimestamp: metav1.NewTime(noon.Add(-age))},
		Spec:   scheduling.PodGroupSpec{Queue: queue, Priority: priority, MinMember: least},
		Status: scheduling.PodGroupStatus{Running: bound, Pending: waiting}}
	if status != "" {
		g.Status.Conditions = []scheduling.PodGroupCondition{{Type: scheduling.GroupScheduled, Status: status, Reason: reason, Message: message}}
	}
	return g
}

func waitingPod(name, group, queue, message string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{}, CreationTimestamp: metav1.NewTime(noon.Add(-time.Minute))}}
	if group != "" {
		p.Labels[scheduling.LabelGroupName] = group
	}
	if queue != "" {
		p.Labels[scheduling.LabelQueue] = queue
	}
	if message != "" {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: message}}
	}
	return p
}

func TestWaitersAreListedInOrder(t *testing.T) {
	const no, yes = metav1.ConditionFalse, metav1.ConditionTrue
	groups := []scheduling.PodGroup{
		groupOf("new", "q", time.Second, 0, 2, 0, 2, "", "", ""),
		groupOf("old", "q", time.Hour, 0, 2, 0, 2, no, scheduling.ReasonQuotaExceeded, "2 cpu needed, 1 of 3 left"),
		groupOf("urgent", "q", time.Minute, 9, 1, 0, 1, no, scheduling.ReasonNoRoom, "no node fits"),
		groupOf("reserved", "q", time.Minute, 0, 1, 0, 1, no, scheduling.ReasonReserved, "room is reserved for it"),
		groupOf("broken", "q", time.Minute, 0, 3, 2, 1, yes, scheduling.ReasonScheduled, ""),
		groupOf("elastic", "q", 2*time.Hour, 0, 2, 3, 2, yes, scheduling.ReasonScheduled, ""),
		groupOf("paused", "q", time.Hour, 0, 2, 0, 0, no, scheduling.ReasonQuotaExceeded, "stale"),
		groupOf("elsewhere", "other", time.Hour, 0, 1, 0, 1, no, scheduling.ReasonNoRoom, "no node fits"),
	}
	leaving := waitingPod("leaving", "", "q", "")
	leaving.DeletionTimestamp = &metav1.Time{Time: noon}
	pods := []corev1.Pod{
		waitingPod("new-0", "new", "q", ""), waitingPod("new-1", "new", "q", ""), waitingPod("old-0", "old", "q", ""), waitingPod("old-1", "old", "q", ""),
		waitingPod("urgent-0", "urgent", "q", ""), waitingPod("reserved-0", "reserved", "q", ""),
		waitingPod("broken-2", "broken", "q", "the quota does not allow it"), waitingPod("elastic-4", "elastic", "q", "later"), waitingPod("elastic-3", "elastic", "q", "no node has room"),
		waitingPod("elsewhere-0", "elsewhere", "q", ""), // the queue of its group applies
		waitingPod("single", "", "q", "no node at all"), waitingPod("default", "", "", ""), leaving,
	}
	got := observed.Waiters("q", pointers(groups), pointers(pods))
	want := `
      GROUP         PODS   PRIORITY   AGE   WHY
  1   ns/broken     1      0          60s   the quota does not allow it
  2   ns/reserved   1      0          60s   room is reserved for it
  3   ns/urgent     1      9          60s   no node fits
  4   ns/elastic    2      0          120m  no node has room
  5   ns/old        2      0          60m   2 cpu needed, 1 of 3 left
  6   ns/single     1      0          60s   no node at all
  7   ns/new        2      0          1s    not tried yet
`
	if diff := cmp.Diff(words(want), words(strings.Join(Table(got, noon, view.Style{}, 0), "\n"))); diff != "" {
		t.Error(diff)
	}
	if got := observed.Waiters(scheduling.DefaultQueue, pointers(groups), pointers(pods)); len(got) != 1 || got[0].Name != "ns/default" {
		t.Errorf("in the default queue: %+v", got)
	}
	for name, want := range map[string]string{
		"ns/broken": "1 of 7 that wait", "ns/urgent": "3 of 7 that wait, behind ns/broken, ns/reserved",
		"ns/old": "5 of 7 that wait, behind ns/broken, ns/reserved, ns/urgent and 1 more", "ns/paused": "",
	} {
		if got := observed.Place(name, got, false); got != want {
			t.Errorf("the place of %s: %q, want %q", name, got, want)
		}
	}
	if text := Table(nil, noon, view.Style{}, 0); len(text) != 1 || text[0] != "  none" {
		t.Errorf("without waiting groups: %q", text)
	}
}

// words returns the words of a text line by line, without its layout.
func words(text string) string {
	var lines []string
	for line := range strings.Lines(strings.TrimSpace(text)) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}
