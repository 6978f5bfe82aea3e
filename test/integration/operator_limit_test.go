package integration

import (
	"fmt"
	"testing"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// A job that has begun is carried on by an operator that would refuse it: its status follows its pods, failures are restarted, it
// ends, is cleaned up and deleted after its time to live. One that has not begun is refused.
func TestLoweredLimitCarriesJobsOn(t *testing.T) {
	w := newWorld(t)
	generous := startOperator(t, w.env.Kubeconfig, "--max-replicas=10")
	job := newJob("job", restarting(role("w", 3, commandRun), batch.RestartOnFailure, 3))
	job.Spec.CleanUpPolicy = batch.CleanUpAll
	w.create(job)
	w.awaitPhase("job", batch.JobRunning)
	generous.kill()

	startOperator(t, w.env.Kubeconfig, "--max-replicas=2")
	w.create(newJob("late", role("w", 3, commandRun)))
	w.awaitPhase("late", batch.JobFailed)
	if c := conditionOf(w.job("late"), batch.JobFailedCondition); c.Reason != batch.ReasonInvalidSpec {
		t.Errorf("the job that has not begun failed for %s: %s", c.Reason, c.Message)
	}

	before := w.pods()["job-w-1"].UID
	w.finish("job-w-1", 1)
	w.await("the replica that failed runs again", func() error {
		j := w.job("job")
		if p := w.pods()["job-w-1"]; p == nil || p.UID == before || j.Status.BackoffCount != 1 || j.Status.Phase != batch.JobRunning {
			return fmt.Errorf("%d restarts, phase %s", j.Status.BackoffCount, j.Status.Phase)
		}
		return nil
	})
	for _, name := range []string{"job-w-0", "job-w-1", "job-w-2"} {
		w.finish(name, 0)
	}
	w.awaitPhase("job", batch.JobSucceeded)
	w.await("its pods are cleaned up", func() error {
		for name := range w.pods() {
			if name == "job-w-0" || name == "job-w-1" || name == "job-w-2" {
				return fmt.Errorf("%s is there", name)
			}
		}
		return nil
	})
	w.patch("job", `{"spec":{"ttlSecondsAfterFinished":0}}`)
	w.await("it is deleted after its time to live", func() error { return gone(w.get("job", &batch.GenericJob{})) })
}
