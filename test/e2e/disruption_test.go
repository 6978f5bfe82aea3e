package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/gate"
	"tensorstack.dev/batch/test/kit/history"
	"tensorstack.dev/batch/test/kit/jobs"
)

// TestDisruptedPodsAreReplacedWithoutCharge verifies that a deleted or evicted pod is replaced without a charge. The
// job allows no restart, so any charge would end it.
func TestDisruptedPodsAreReplacedWithoutCharge(t *testing.T) {
	t.Parallel()
	for name, disrupt := range map[string]func(*space, *corev1.Pod) error{
		"deletion": func(s *space, p *corev1.Pod) error { return s.Client.Delete(s.Context(), p) },
		"deletion by force": func(s *space, p *corev1.Pod) error {
			return s.Client.Delete(s.Context(), p, client.GracePeriodSeconds(0))
		},
		"eviction": func(s *space, p *corev1.Pod) error {
			return s.Core.PolicyV1().Evictions(s.Namespace).Evict(s.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: s.Namespace}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpace(t)
			s.Create(s.newJob("job", role("worker", 2, gate.Obey)))
			s.awaitPhase("job", batch.JobRunning)
			s.awaitStarts("job-worker-0", 1)
			if err := disrupt(s, s.podNow("job-worker-0")); err != nil {
				t.Fatal(err)
			}
			s.awaitStarts("job-worker-0", 2)
			p := s.podNow("job-worker-0")
			if history.AttemptOf(p) != "1" || p.Annotations[batch.AnnotationRestarts] != "0" {
				t.Errorf("the replacement is attempt %s with %s restarts", history.AttemptOf(p), p.Annotations[batch.AnnotationRestarts])
			}
			s.awaitEvent("job", batch.EventReplicaDisrupted, "job-worker-0")
			s.order("job-worker-0", 0)
			s.order("job-worker-1", 0)
			j := s.awaitPhase("job", batch.JobSucceeded)
			if j.Status.BackoffCount != 0 || jobs.Replica(j, "job-worker-0").RestartCount != 0 {
				t.Errorf("%d restarts were charged", j.Status.BackoffCount)
			}
			s.checkStarts(map[string]int{"job-worker-1": 1})
		})
	}
}

// TestPodOverItsStorageLimitIsCharged verifies that the kubelet's eviction of a pod that exceeds the size limit of its
// volume counts as a failure of the replica. A replica that always exceeds the limit therefore ends its job.
func TestPodOverItsStorageLimitIsCharged(t *testing.T) {
	s := lend(t, quick)
	worker := jobs.Restarting(role("worker", 1, `echo started >> /gate/$HOSTNAME.starts; head -c 3000000 /dev/zero > /scratch/full; exec sleep 1000000`),
		batch.RestartOnFailure, 1)
	limit := resource.MustParse("1Mi")
	worker.Template.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &limit}}}}
	worker.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}
	s.Create(s.newJob("full", worker))
	j := s.awaitPhase("full", batch.JobFailed)
	checkEnd(t, j, batch.ReasonFailureRule, "full-worker-0")
	s.checkRestarts(j, map[string]int{"full-worker-0": 1})
	if r := jobs.Replica(j, "full-worker-0"); r.Reason != "Evicted" {
		t.Errorf("the replica's reason is %q, want Evicted", r.Reason)
	}
}

// TestReplacementWaitsForTheOldPod verifies that a replacement starts only when the old pod has ended, however long the
// old pod takes to end.
func TestReplacementWaitsForTheOldPod(t *testing.T) {
	s := newSpace(t)
	worker := role("worker", 1, `trap 'read x < /gate/leave; echo left >> /gate/$HOSTNAME.starts; exit 0' TERM
		echo started >> /gate/$HOSTNAME.starts; sleep 1000000 & wait`)
	worker.Template.Spec.TerminationGracePeriodSeconds = new(int64(3600))
	s.Create(s.newJob("slow", worker))
	s.Must(s.AddPipe("leave"))
	s.awaitStarts("slow-worker-0", 1)
	old := s.podNow("slow-worker-0")
	if err := s.Client.Delete(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	s.fence()
	if now := s.podNow("slow-worker-0"); now.UID != old.UID || now.DeletionTimestamp == nil || s.starts("slow-worker-0") != 1 {
		t.Fatalf("the slow pod was replaced before it ended\n%s", s.Dump())
	}
	s.order("leave", 0)
	s.awaitStarts("slow-worker-0", 2)
	if got := strings.Fields(s.written("slow-worker-0.starts")); strings.Join(got, " ") != "started left started" {
		t.Errorf("the processes recorded %v", got)
	}
	if n := s.job("slow").Status.BackoffCount; n != 0 {
		t.Errorf("%d restarts were charged", n)
	}
}

// TestPreemptedPodIsReplacedWithoutCharge verifies that a job whose pod the scheduler preempts reports why it waits,
// and that the job continues once there is room, without an increase of status.backoffCount.
func TestPreemptedPodIsReplacedWithoutCharge(t *testing.T) {
	s := newSpace(t)
	most := resource.NewMilliQuantity(s.allocatable().MilliValue()*3/4, resource.DecimalSI)
	worker := role("worker", 1, gate.Obey)
	worker.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *most}
	s.Create(s.newJob("low", worker))
	s.awaitStarts("low-worker-0", 1)

	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}, Value: 1000}
	if err := s.Client.Create(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	high := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Spec: role("x", 1, "exec sleep 1000000").Template.Spec}
	high.Spec.PriorityClassName = class.Name
	high.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *most}
	high.SetNamespace(s.Namespace)
	for err := s.Client.Create(t.Context(), high); err != nil; err = s.Client.Create(t.Context(), high) {
		if !strings.Contains(err.Error(), "no PriorityClass") { // the API server's cache may lack the class
			t.Fatal(err)
		}
	}
	s.awaitJob("low", "the scheduler's reason", func(j *batch.GenericJob) bool {
		c := jobs.Condition(j, batch.JobRunningCondition)
		return j.Status.Phase == batch.JobPending && c.Reason == batch.ReasonUnschedulable && strings.Contains(c.Message, "Insufficient cpu")
	})
	s.awaitEvent("low", batch.EventReplicaDisrupted, "low-worker-0")
	if err := s.Client.Delete(t.Context(), high); err != nil {
		t.Fatal(err)
	}
	s.awaitStarts("low-worker-0", 2)
	s.order("low-worker-0", 0)
	if j := s.awaitPhase("low", batch.JobSucceeded); j.Status.BackoffCount != 0 {
		t.Errorf("%d restarts were charged", j.Status.BackoffCount)
	}
	if err := s.Client.Delete(t.Context(), class); err != nil {
		t.Error(err)
	}
}

// allocatable returns the CPU that the node offers to pods.
func (s *space) allocatable() *resource.Quantity {
	s.Helper()
	var nodes corev1.NodeList
	if err := s.Client.List(s.Context(), &nodes); err != nil || len(nodes.Items) != 1 {
		s.Fatalf("%d nodes: %v", len(nodes.Items), err)
	}
	return nodes.Items[0].Status.Allocatable.Cpu()
}
