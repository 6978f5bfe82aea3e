package view

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/archive"
)

// TestPodAndArchiveShowTheSameEnd verifies how the timeline shows the end of an attempt, and that it shows the same for
// a pod and for the record of the pod in the archive.
func TestPodAndArchiveShowTheSameEnd(t *testing.T) {
	exited := func(code int32, at int) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", StartedAt: minute(1), FinishedAt: minute(at)}}
	}
	waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}
	const training, generic = "PyTorchTrainingJob", "GenericJob"
	for _, c := range []struct {
		name, kind, reason  string
		main, sidecar, init corev1.ContainerState
		disrupted           bool
		want                string
	}{
		{name: "the sidecar was stopped after a success", kind: training, reason: "DeadlineExceeded", main: exited(0, 5), sidecar: exited(137, 6), init: exited(0, 1), want: "succeeded: succeeded"},
		{name: "the sidecar was stopped after a failure", kind: training, reason: "DeadlineExceeded", main: exited(3, 5), sidecar: exited(137, 6), init: exited(0, 1), want: "failed: exit code 3"},
		{name: "all containers count", kind: generic, main: exited(0, 5), sidecar: exited(7, 6), init: exited(0, 1), want: "failed: exit code 7"},
		{name: "an init container failed", kind: training, main: waiting, sidecar: waiting, init: exited(4, 2), want: "failed: exit code 4, init container setup"},
		{name: "a success before an eviction", kind: training, main: exited(0, 5), sidecar: exited(137, 6), init: exited(0, 1), disrupted: true, want: "succeeded: succeeded"},
		{name: "a failure at an eviction", kind: training, main: exited(137, 6), sidecar: exited(137, 6), init: exited(0, 1), disrupted: true, want: "evicted: evicted"},
		{name: "the limit of its storage", kind: training, reason: "Evicted", main: exited(0, 5), sidecar: exited(0, 5), init: exited(0, 1), want: "failed: Evicted"},
		{name: "the kubelet rejected it", kind: training, reason: "OutOfcpu", want: "evicted: evicted"},
	} {
		yes := true
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j-w-0", UID: "p", ResourceVersion: "1", CreationTimestamp: minute(0),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: batch.GroupVersion.String(), Kind: c.kind, Name: "j", UID: "job", Controller: &yes}},
			Labels:          map[string]string{batch.LabelJobName: "j", batch.LabelJobKind: c.kind, batch.LabelReplicaType: "w", batch.LabelReplicaRank: "0", batch.LabelReplicaAttempt: "0"}}}
		p.Spec = corev1.PodSpec{NodeName: "n", InitContainers: []corev1.Container{{Name: "setup"}}, Containers: []corev1.Container{{Name: "proxy"}, {Name: "pytorch"}}}
		p.Status.Phase, p.Status.Reason = corev1.PodFailed, c.reason
		if c.reason == "DeadlineExceeded" {
			p.Spec.ActiveDeadlineSeconds = new(int64(1))
		}
		if c.disrupted {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", LastTransitionTime: minute(6)}}
		}
		if c.main != (corev1.ContainerState{}) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "setup", State: c.init}}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "proxy", State: c.sidecar}, {Name: "pytorch", State: c.main}}
		}
		record, err := archive.AttemptOf(p)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		for of, a := range map[string]attempt{"pod": attemptOf(p), "archive": attemptOfArchive(record)} {
			if got := fmt.Sprintf("%s: %s", a.end, a.detail); got != c.want {
				t.Errorf("%s: by the %s %q, want %q", c.name, of, got, c.want)
			}
		}
	}
}
