package engine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// newSidecars starts a training job of 2 replicas whose pods have a sidecar before the main container.
func newSidecars(t *testing.T, limit int32) *play {
	p := newTraining(t, 2, limit)
	r := &p.job.Roles[0]
	r.Main, r.MainDecides = 1, true
	r.Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "proxy"}, {Name: "main"}}}}
	return p.pass().run(0, 1).withSidecar(0).withSidecar(1).pass().want(batch.JobRunning, 0)
}

// withSidecar adds a running sidecar to a pod.
func (p *play) withSidecar(rank int) *play {
	s := &p.pod(rank).Status
	s.Phase = corev1.PodRunning
	s.ContainerStatuses = append([]corev1.ContainerStatus{{Name: "proxy",
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(p.now)}}}}, s.ContainerStatuses...)
	return p
}

// exitMain ends the main container of a pod while its sidecar runs.
func (p *play) exitMain(rank int, code int32) *play { return p.exit(rank, code).withSidecar(rank) }

// stop verifies that the plan stops a pod and no other, ends the pod's sidecar as the kubelet then does, and runs a
// pass.
func (p *play) stop(rank int) *play {
	p.t.Helper()
	pod := p.pod(rank)
	if len(p.plan.Stop) != 1 || p.plan.Stop[0] != (Stop{pod.Name, pod.UID}) {
		p.t.Fatalf("stopped are %+v, want %s; conditions %+v", p.plan.Stop, pod.Name, p.stat.Conditions)
	}
	deadline := StopDeadline
	pod.Spec.ActiveDeadlineSeconds = &deadline
	pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "DeadlineExceeded"
	pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, FinishedAt: metav1.NewTime(p.now)}}
	return p.pass()
}

func (p *play) wantReplica(rank int, phase batch.ReplicaPhase, reason string) *play {
	p.t.Helper()
	if r := p.stat.Tasks[0].Replicas[rank]; r.Phase != phase || r.Reason != reason {
		p.t.Fatalf("replica %d is %s (%s), want %s (%s)", rank, r.Phase, r.Reason, phase, reason)
	}
	return p
}

func TestMainContainerEndsTheReplica(t *testing.T) {
	p := newSidecars(t, 0)
	p.exitMain(1, 0).after(time.Second).pass().wantReplica(1, batch.ReplicaSucceeded, "")
	if len(p.plan.Stop) > 0 || p.plan.RequeueAfter != 4*time.Second {
		t.Fatalf("sidecars have %s to end; stopped are %+v, the next pass is in %s", sidecarGrace, p.plan.Stop, p.plan.RequeueAfter)
	}
	p.after(4*time.Second).pass().stop(1).wantReplica(1, batch.ReplicaSucceeded, "")
	p.exitMain(0, 0).after(2*time.Second).pass().want(batch.JobSucceeded, 0)
	p.after(4*time.Second).pass().stop(0).want(batch.JobSucceeded, 0)
	if len(p.pods) != 2 || p.after(time.Hour).pass().plan.Stop != nil {
		t.Errorf("%d pods remain, want 2; stopped again: %+v", len(p.pods), p.plan.Stop)
	}
	end := EndOf(p.pod(0), "main")
	if !end.Succeeded || end.Failed || end.Container != "main" || *end.ExitCode != 0 || end.Reason != "" || !end.Finished.Before(p.pod(0).Status.ContainerStatuses[0].State.Terminated.FinishedAt.Time) {
		t.Errorf("the pod ended as %+v", end)
	}
	if all := EndOf(p.pod(0), ""); !all.Failed || all.Container != "proxy" || *all.ExitCode != 137 {
		t.Errorf("if all containers count, the pod ended as %+v", all)
	}
	if got := p.stat.Tasks[0].Replicas[0].Containers[0]; got.Name != "main" || *got.ExitCode != 0 {
		t.Errorf("the status lists %+v first, want the main container", got)
	}
}

func TestMainContainerFailsTheReplica(t *testing.T) {
	p := newSidecars(t, 0)
	p.exitMain(0, 3).pass().want(batch.JobFailed, 0)
	p.after(sidecarGrace).pass().stop(0).want(batch.JobFailed, 0)
}

func TestSidecarThatEndsChangesNothing(t *testing.T) {
	for _, code := range []int32{0, 1} {
		p := newSidecars(t, 3)
		p.pod(0).Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(p.now)}}
		p.after(time.Minute).pass().want(batch.JobRunning, 0)
		p.pod(0).Status.ContainerStatuses[1].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(p.now)}}
		if p.pod(0).Status.Phase = corev1.PodSucceeded; code != 0 {
			p.pod(0).Status.Phase = corev1.PodFailed
		}
		p.pass().want(batch.JobSucceeded, 0)
	}
}

// TestMainContainerIsRestarted verifies that the restart policy uses the main container's exit code, whatever the exit
// code of the stopped sidecar.
func TestMainContainerIsRestarted(t *testing.T) {
	p := newSidecars(t, 1)
	p.job.Roles[0].Restart = Restart{RestartCodes: []CodeRange{{137, 137}}}
	first := p.exitMain(1, 137).pod(1).UID
	p.pass().pass().run(1).withSidecar(1).pass().want(batch.JobRunning, 1)
	if p.pod(1).UID == first {
		t.Fatal("the pod was not replaced")
	}
	p.exitMain(1, 1).after(sidecarGrace).pass().stop(1).wantReplica(1, batch.ReplicaFailed, "").want(batch.JobRunning, 1)
}

func TestSidecarStopsDuringTheBackOff(t *testing.T) {
	p := newSidecars(t, 9)
	p.exitMain(1, 1).pass().pass().run(1).withSidecar(1).pass().exitMain(1, 1).pass()
	p.after(sidecarGrace).pass().stop(1).wantReplica(1, batch.ReplicaFailed, "BackOff")
	p.after(5*time.Second).pass().pass().run(1).withSidecar(1).pass().want(batch.JobRunning, 2)
}

func TestResultOutlivesTheDisruptionOfASidecar(t *testing.T) {
	evict := func(p *play) {
		p.pod(1).Status.Phase, p.pod(1).Status.Reason = corev1.PodFailed, "Evicted"
		p.pod(1).Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(p.now)}}
	}
	p := newSidecars(t, 0).exitMain(1, 0).after(time.Second)
	evict(p)
	p.after(2*time.Second).pass().wantReplica(1, batch.ReplicaSucceeded, "")

	p = newSidecars(t, 0).exitMain(1, 143) // the eviction ended the main container
	evict(p)
	p.after(2*time.Second).pass().pass().wantReplica(1, batch.ReplicaCreating, "Evicted").want(batch.JobRunning, 0)
}

// TestLateNodeLossIsNotCharged verifies that a node loss that is reported long after it killed the containers is not
// charged.
func TestLateNodeLossIsNotCharged(t *testing.T) {
	p := newSidecars(t, 0).exitMain(1, 137).after(time.Minute)
	p.pod(1).Status.Phase, p.pod(1).Status.Reason = corev1.PodFailed, "NodeLost"
	p.pod(1).Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(p.now)}}
	p.pass().pass().wantReplica(1, batch.ReplicaCreating, "NodeLost").want(batch.JobRunning, 0)
}

func TestPauseKeepsTheResultOfAMainContainer(t *testing.T) {
	p := newSidecars(t, 0).exitMain(1, 0).after(2 * time.Second).pass()
	p.job.Pause = true
	p.pass().pass()
	p.job.Pause = false
	p.pass().pass()
	if len(p.pods) != 1 || p.pods["job-worker-0"] == nil {
		t.Fatalf("%d pods after the pause, want that of replica 0", len(p.pods))
	}
}

// TestCleanUpKeepsAMainContainerThatEnded verifies that clean-up of unfinished pods keeps a pod whose main container
// has ended.
func TestCleanUpKeepsAMainContainerThatEnded(t *testing.T) {
	p := newSidecars(t, 0)
	p.job.CleanUp = batch.CleanUpUnfinished
	p.exitMain(0, 0).pass().want(batch.JobSucceeded, 0)
	if p.after(sidecarGrace).pass().stop(0); len(p.pods) != 1 {
		t.Fatalf("%d pods remain, want 1", len(p.pods))
	}
}

// TestEveryContainerOfAGenericJobCounts verifies that a replica of a GenericJob has not ended while one of its
// containers runs, and that this container is not stopped.
func TestEveryContainerOfAGenericJobCounts(t *testing.T) {
	p := newPlay(t, 1, 0).pass().run(0).withSidecar(0).pass().exitMain(0, 0).after(time.Minute).pass().want(batch.JobRunning, 0)
	if len(p.plan.Stop) > 0 {
		t.Fatalf("stopped are %+v", p.plan.Stop)
	}
}
