package browser

import (
	"testing"
	"time"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// TestAttemptsInLogs verifies that the log page of a restarted replica links to the log of the replica's earlier
// attempt in the archive, and that the archive's page links back. If the archive lacks the attempt, the page says that
// the earlier logs cannot be shown.
func TestAttemptsInLogs(t *testing.T) {
	restarted := func() *scene {
		s := &scene{&stage{log: logText}, time.Now()}
		s.node("gpu-0", true)
		s.job(&play{"vision", "restarted", "", "amelie", batch.JobRunning, 2, 2, "1", 5 * hour, 4 * hour, 0, 2 * hour, "", func(int32) string { return "gpu-0" }})
		return s
	}
	job := "/jobs/vision/genericjob/restarted"
	logs := job + "/logs"
	s := restarted()
	b := open(t, serveStage(t, s.stage, s))
	b.visit(logs)
	b.shows("23 lines, live", "--- attempt 2 ---", "all attempts, in the archive")
	b.visit(logs + "?replica=worker-0")
	b.shows("11 lines, live")
	b.visit(logs + "?replica=worker-1")
	b.shows("12 lines, live", "attempt 2, since", "attempt 1: exit code 1, ", "--- attempt 2 ---")
	b.looksGood()
	b.reachable()
	b.click(`nav[aria-label=Attempts] a:nth-child(2)`)
	b.at("/history/vision-restarted/logs?replica=worker-1&attempt=1")
	b.shows("12 lines; the archive has no more", "the archive has only the end of this log")
	b.looksGood()
	if n := evaluate[int](b, "document.querySelectorAll('#log b').length"); n != 0 {
		t.Errorf("the only replica is named before %d lines", n)
	}
	b.click("#error")
	b.awaits("the whole traceback is marked", "document.querySelectorAll('#log .e').length === 4 && document.querySelector('#log .hit').innerText.includes('Traceback')")
	b.click("#logform > a:last-child")
	b.at(logs + "?replica=worker-1")

	b = open(t, serveStage(t, restarted().stage, nil))
	b.visit(job)
	b.shows("exit code 1") // the console has now seen the earlier pod, which only watch events contain
	b.visit(logs + "?replica=worker-1")
	b.shows("attempt 1: exit code 1, ", "The logs of earlier attempts cannot be shown", "12 lines, live")
	b.looksGood()
}
