package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// asTraining gives a job what training jobs have: a master, one limit for all restarts, restarts by exit code, a deadline,
// elastic roles.
func asTraining(rng *rand.Rand, j *engine.Job) {
	limit := int32(rng.IntN(5))
	j.RestartLimit = &limit
	for i := range j.Roles {
		j.Roles[i].Restart.Limit = nil
		j.Roles[i].MainDecides = true
		if rng.IntN(2) == 0 { // the main container is not the first everywhere
			j.Roles[i].Main = rng.IntN(2)
			containers := []corev1.Container{{Name: sidecar}, {Name: sidecar}}
			containers[j.Roles[i].Main].Name = "main"
			j.Roles[i].Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: containers}}
		}
		if rng.IntN(3) == 0 {
			j.Roles[i].Restart = engine.Restart{RestartCodes: []engine.CodeRange{{First: 1, Last: 2}}, All: j.Roles[i].Restart.All}
		}
	}
	master := []engine.Rule{{Text: "{}", Members: []engine.Member{{Role: 0, Rank: 0}}}}
	j.Success, j.Failure, j.Collective = master, master, rng.IntN(2) == 0
	if rng.IntN(3) == 0 {
		d := time.Duration(1+rng.IntN(30)) * time.Minute / 2
		j.Deadline = &d
	}
	if rng.IntN(2) == 0 {
		j.Elastic = &engine.Elastic{Min: 1 + rng.IntN(2), Max: 8}
	}
}

// scale gives the roles other sizes. The first one keeps its rank 0.
func (w *world) scale() {
	w.job.Roles = slices.Clone(w.job.Roles)
	for i := range w.job.Roles {
		least := 0
		if i == 0 {
			least = 1
		}
		w.job.Roles[i].Replicas = least + w.rng.IntN(4)
	}
	w.jobChanged()
}

// checkSize holds the size that a status speaks of against what the job asks for. Elastic jobs may keep the size that they
// had, once a replica has succeeded or the job has finished.
func (w *world) checkSize(s *batch.JobStatus, sum int) {
	want := w.job.Replicas()
	keeps := w.job.Elastic != nil && (finished(w.status) || w.anySuccess())
	asked := sum == want || keeps && sum == int(w.status.Replicas)
	if !asked || sum != int(s.Replicas) {
		w.fail("aggregate %+v adds up to %d, want %d; replicas %d", s.Aggregate, sum, want, s.Replicas)
	}
}

func (w *world) anySuccess() bool {
	for _, pods := range w.past {
		if slices.ContainsFunc(pods, func(t truth) bool { return t.selfEnded && t.success }) {
			return true
		}
	}
	return false
}

// checkMaster sees to it that where success is up to one replica, that one has ended.
func (w *world) checkMaster(s *batch.JobStatus) {
	t := w.outcome(w.job.PodName(w.job.Roles[0].Type, 0))
	if len(w.job.Success) > 0 && isTrue(s, batch.JobCompleted) && !t.selfEnded {
		w.fail("Completed, but the replica that decides did not end by itself")
	}
}

// checkWake sees to it that deadlines are waited for.
func (c *controller) checkWake(read *jobEvent, plan *engine.Plan) {
	status := read.status
	if plan.Status != nil {
		status = plan.Status
	}
	if d := read.job.Deadline; d != nil && !finished(status) && status.RunMode != batch.RunPause && status.StartTime != nil && !c.wake.After(c.w.now) {
		c.w.fail("nothing waits for the deadline %s after %s", d, status.StartTime)
	}
}

// checkDelete sees to it that no replica that the job has, alive and in the right mode, loses its pod, however the job is
// scaled.
func (c *controller) checkDelete(pod *corev1.Pod, status *batch.JobStatus) {
	if pod == nil || decided(pod) || pod.DeletionTimestamp != nil || finished(status) {
		return
	}
	if n, has := attemptsOf(status)[pod.Name]; has && attempt(pod) >= n && pod.Annotations[batch.AnnotationRunMode] == string(status.RunMode) {
		c.w.fail("pod %s is alive and wanted, and is deleted", pod.Name)
	}
}

func reasonOf(s *batch.JobStatus, t batch.JobConditionType) batch.Reason {
	for _, c := range s.Conditions {
		if c.Type == t {
			return c.Reason
		}
	}
	return ""
}
