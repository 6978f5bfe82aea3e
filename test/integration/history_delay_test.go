package integration

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
)

// watchEnds records when jobs are first seen finished, until the test ends. endOf returns this time for the job with
// the name, or the zero time if the job has not been seen finished.
func (w *world) watchEnds() (endOf func(job string) time.Time) {
	w.Helper()
	var mu sync.Mutex
	ends := map[string]time.Time{}
	w.Watch(&batch.GenericJobList{}, func(all []client.Object) bool {
		mu.Lock()
		defer mu.Unlock()
		for _, j := range all {
			if _, known := ends[j.GetName()]; !known && jobs.Over(j) {
				ends[j.GetName()] = time.Now()
			}
		}
		return false
	})
	return func(job string) time.Time {
		mu.Lock()
		defer mu.Unlock()
		return ends[job]
	}
}

// TestEndedJobsAreArchived verifies that the archive gets each job with its end, also if the console was down when the
// job ended and the job still exists. The test prints how long that took, which depends on the load of the machine.
// TestRecordsAreWrittenAtOnce verifies that the recorder itself does not delay a record.
func TestEndedJobsAreArchived(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	endOf := w.watchEnds()
	const before, after = 10, 30
	run := func(from, to int) {
		for i := from; i < to; i++ {
			w.Create(jobs.New(fmt.Sprintf("ends-%d", i), jobs.Role("w", 1, kubelet.Exit, fmt.Sprint(i%2))))
		}
	}
	run(0, before)
	for i := range before {
		w.Await("the job has ended", func() error {
			if name := fmt.Sprintf("ends-%d", i); endOf(name).IsZero() {
				return errors.New(name + " has not")
			}
			return nil
		})
	}
	viewer := w.person(w.startConsole(consoleArchive(filepath.Join(t.TempDir(), "archive.db"))), "viewer", look...)
	up := time.Now()
	var longest time.Duration
	archived := map[string]bool{}
	await := func(n int) {
		t.Helper()
		w.Await(fmt.Sprintf("the archive has %d jobs with their ends", n), func() error {
			for name, j := range viewer.archived() {
				if archived[name] || j.Ended.IsZero() || endOf(name).IsZero() {
					continue
				}
				archived[name] = true
				since := endOf(name)
				if since.Before(up) {
					since = up
				}
				longest = max(longest, time.Since(since))
			}
			if len(archived) < n {
				return fmt.Errorf("it has %d", len(archived))
			}
			return nil
		})
	}
	await(before)
	t.Logf("the archive had the jobs that had ended before the console started %s later", longest)
	run(before, after)
	await(after)
	t.Logf("the archive had each job within %s of its end", longest)
}
