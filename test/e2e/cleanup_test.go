package e2e

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/gate"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/namespace"
	"tensorstack.dev/batch/test/kit/watch"
)

// finishing creates a job and returns it when it has finished. Rank 1 of the role worker succeeds first. The exit code
// of rank 0, code, then decides the result. The replica of the role idle does not exit by itself.
func (s *space) finishing(name string, policy batch.CleanUpPolicy, code int) *batch.GenericJob {
	s.Helper()
	j := s.newJob(name, role("worker", 2, gate.Obey), role("idle", 1, gate.Idle))
	j.Spec.SuccessRules = []batch.FinishRule{{"worker": {}}}
	j.Spec.CleanUpPolicy = policy
	s.Create(j)
	s.awaitStarts(name+"-idle-0", 1)
	s.order(name+"-worker-1", 0)
	s.awaitJob(name, "rank 1 has succeeded", func(j *batch.GenericJob) bool { return j.Status.Aggregate.Succeeded == 1 })
	s.order(name+"-worker-0", code)
	if code == 0 {
		return s.awaitPhase(name, batch.JobSucceeded)
	}
	return s.awaitPhase(name, batch.JobFailed)
}

func podNames(pods []*corev1.Pod) string {
	names := ""
	for _, p := range pods {
		names += p.Name + " "
	}
	return names
}

// TestCleanUpPolicyDecidesWhichPodsRemain verifies which pods remain under each clean-up policy, after a success and
// after a failure.
func TestCleanUpPolicyDecidesWhichPodsRemain(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]int{"success": 0, "failure": 1} {
		t.Run("None after "+name, func(t *testing.T) {
			s := newSpace(t)
			s.finishing("job", "", code)
			s.awaitEvent("job", batch.EventReplicasHoldResources, "1 of its pods")
			s.fence()
			pods := s.pods("job", "all", func(p []*corev1.Pod) bool { return len(p) == 3 && p[0].Status.Phase == corev1.PodRunning })
			if pods[0].Name != "job-idle-0" || pods[0].DeletionTimestamp != nil {
				t.Errorf("the unfinished pod: %s", s.Dump())
			}
			// The policy can be changed after the job has finished.
			s.edit("job", func(j *batch.GenericJob) { j.Spec.CleanUpPolicy = batch.CleanUpUnfinished })
			s.pods("job", "the finished ones", func(p []*corev1.Pod) bool { return podNames(p) == "job-worker-0 job-worker-1 " })
		})
		t.Run("Unfinished after "+name, func(t *testing.T) {
			s := newSpace(t)
			s.finishing("job", batch.CleanUpUnfinished, code)
			s.pods("job", "the finished ones", func(p []*corev1.Pod) bool { return podNames(p) == "job-worker-0 job-worker-1 " })
			j := s.awaitJob("job", "word of the deletion", func(j *batch.GenericJob) bool { return j.Status.Aggregate.Deleted == 1 })
			if n := occurrences(s.Events(), "job", string(batch.EventReplicasHoldResources)); n != 0 {
				t.Errorf("%d warnings of pods that hold resources", n)
			}
			if jobs.Over(j) && jobs.Replica(j, "job-worker-1").Phase != batch.ReplicaSucceeded {
				t.Errorf("rank 1: %+v", jobs.Replica(j, "job-worker-1"))
			}
			s.log("job-worker-1", "main")
		})
		t.Run("All after "+name, func(t *testing.T) {
			s := newSpace(t)
			s.finishing("job", batch.CleanUpAll, code)
			s.pods("job", "none", func(p []*corev1.Pod) bool { return len(p) == 0 })
			j := s.awaitJob("job", "word of the deletion", func(j *batch.GenericJob) bool { return j.Status.Aggregate.Deleted == 1 })
			if r := jobs.Replica(j, "job-worker-1"); r.Phase != batch.ReplicaSucceeded || len(r.Containers) != 1 || *r.Containers[0].ExitCode != 0 {
				t.Errorf("the status of rank 1: %+v", r)
			}
		})
	}
}

// TestFinishedJobIsDeletedAfterItsTimeToLive verifies that a finished job and its objects are deleted when its time to
// live has passed.
func TestFinishedJobIsDeletedAfterItsTimeToLive(t *testing.T) {
	s := newSpace(t)
	j := s.newJob("mayfly", role("worker", 2, "exit 0"))
	j.Spec.TTLSecondsAfterFinished = new(int32(2))
	j.Spec.Service = &batch.ServiceOption{Ports: []corev1.ServicePort{{Port: 80}}}
	s.Create(j)
	j = s.awaitPhase("mayfly", batch.JobSucceeded)
	namespace.AwaitList(s.Test, "the job no longer exists", &batch.GenericJobList{}, func(j []*batch.GenericJob) bool { return len(j) == 0 }, watch.Named("mayfly"))
	if lived := time.Since(j.Status.CompletionTime.Time); lived < 2*time.Second {
		t.Errorf("the job was deleted %s after its end, want 2 s", lived)
	}
	s.pods("mayfly", "none", func(p []*corev1.Pod) bool { return len(p) == 0 })
	namespace.AwaitList(s.Test, "no service", &corev1.ServiceList{}, func(a []*corev1.Service) bool { return len(a) == 0 })
}

// TestTimeToLiveAppliesToFinishedJob verifies that a time to live can be set on a job that has already finished.
func TestTimeToLiveAppliesToFinishedJob(t *testing.T) {
	s := newSpace(t)
	s.Create(s.newJob("old", role("worker", 1, "exit 0")))
	s.awaitPhase("old", batch.JobSucceeded)
	s.edit("old", func(j *batch.GenericJob) { j.Spec.TTLSecondsAfterFinished = new(int32(0)) })
	namespace.AwaitList(s.Test, "the job no longer exists", &batch.GenericJobList{}, func(j []*batch.GenericJob) bool { return len(j) == 0 }, watch.Named("old"))
}
