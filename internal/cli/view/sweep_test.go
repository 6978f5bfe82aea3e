package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

func TestSweepFrameShowsUrgentJobsFirst(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	var rows []SweepRow
	for i := range 20 {
		r := SweepRow{Job: Job{Name: fmt.Sprint("s-", i)}, Values: []string{fmt.Sprint(i)}}
		if i < 15 {
			r.Status = &batch.JobStatus{Phase: batch.JobSucceeded}
		}
		rows = append(rows, r)
	}
	rows[7].Status.Phase = batch.JobFailed
	rows[9].Deleted = true
	rows[12].Status.Phase = batch.JobRunning
	lines, whole := SweepFrame("Sweep s", []string{"seed"}, rows, now, Style{}, 60, 8)
	all := strings.Join(lines, "\n")
	if whole || len(lines) > 8 || !strings.HasPrefix(all, "Sweep s: 1 Failed, 1 Deleted, 1 Running, 12 Succeeded, 5 n") {
		t.Errorf("whole %t, %d lines:\n%s", whole, len(lines), all)
	}
	at := -1
	for _, name := range []string{"s-7 ", "s-9 ", "s-12 ", "s-0 ", "… and 16 more"} {
		next := strings.Index(all, name)
		if next <= at {
			t.Errorf("%q is not in its place:\n%s", name, all)
		}
		at = next
	}
	if lines, whole = SweepFrame("Sweep s", []string{"seed"}, rows, now, Style{}, 60, 30); !whole || !strings.HasPrefix(lines[3], "0      s-0 ") {
		t.Errorf("whole %t:\n%s", whole, strings.Join(lines, "\n"))
	}
	for height := range 6 {
		SweepFrame("Sweep s", nil, rows, now, Style{}, 10, height)
	}
}

func TestSweepsAreSortedByNumbers(t *testing.T) {
	var rows []SweepRow
	for _, values := range [][]string{{"10", "b"}, {"9", "b"}, {"9", "a"}, {"0.1", "z"}, {"auto", "a"}} {
		rows = append(rows, SweepRow{Values: values})
	}
	SortSweep(rows)
	var got []string
	for _, r := range rows {
		got = append(got, strings.Join(r.Values, "/"))
	}
	if text := strings.Join(got, " "); text != "0.1/z 9/a 9/b 10/b auto/a" {
		t.Error(text)
	}
}
