package integration

import (
	"fmt"
	"testing"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
	"tensorstack.dev/batch/test/kit/namespace"
)

// TestOperatorContinuesJobsAboveLoweredLimit verifies that an operator with a lowered jobs.maxReplicas continues a
// started job above the limit: its status follows its pods, failed replicas restart, and the job finishes, is cleaned
// up, and is deleted after its time to live. A job above the limit that has not started fails.
func TestOperatorContinuesJobsAboveLoweredLimit(t *testing.T) {
	w := newWorld(t)
	generous := startOperator(t, w.Env.Kubeconfig, "jobs: {maxReplicas: 10}")
	job := jobs.New("job", jobs.Restarting(jobs.Role("w", 3, kubelet.Run), batch.RestartOnFailure, 3))
	job.Spec.CleanUpPolicy = batch.CleanUpAll
	w.Create(job)
	w.awaitPhase("job", batch.JobRunning)
	generous.Kill()

	startOperator(t, w.Env.Kubeconfig, "jobs: {maxReplicas: 2}")
	w.Create(jobs.New("late", jobs.Role("w", 3, kubelet.Run)))
	w.awaitPhase("late", batch.JobFailed)
	if c := jobs.Condition(w.job("late"), batch.JobFailedCondition); c.Reason != batch.ReasonInvalidSpec {
		t.Errorf("the job that has not started failed for %s: %s", c.Reason, c.Message)
	}

	before := w.pods()["job-w-1"].UID
	w.finish("job-w-1", 1)
	w.Await("the failed replica runs again", func() error {
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
	w.Await("its pods are cleaned up", func() error {
		for name := range w.pods() {
			if name == "job-w-0" || name == "job-w-1" || name == "job-w-2" {
				return fmt.Errorf("%s exists", name)
			}
		}
		return nil
	})
	w.patch("job", `{"spec":{"ttlSecondsAfterFinished":0}}`)
	w.Await("it is deleted after its time to live", func() error { return namespace.Gone(w.Get("job", &batch.GenericJob{})) })
}
