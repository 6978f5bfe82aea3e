package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/test/kit/gate"
	"tensorstack.dev/batch/test/kit/history"
	"tensorstack.dev/batch/test/kit/namespace"
)

// TestPodOnALostNodeIsReplaced verifies that a pod that cannot terminate on its node is deleted by force and replaced
// once the node is known to be lost, and not before. The kubelet reports once a second and the time limits are short,
// so that the loss is detected in seconds.
func TestPodOnALostNodeIsReplaced(t *testing.T) {
	s := lend(t, quick)
	worker := role("worker", 1, gate.Obey)
	worker.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: spaceEnv, Value: s.Namespace}}
	s.Create(s.newJob("lost", worker))
	s.awaitStarts("lost-worker-0", 1)
	old := s.pod("lost-worker-0", "running", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	left := s.mainProcess("lost-worker-0")

	// Without the controller manager, the node of a stopped kubelet stays Ready.
	s.Must(s.Env.StopComponent(local.ControllerManager))
	namespace.AwaitList(s.Beside(""), "the node is ready", &corev1.NodeList{}, func(nodes []*corev1.Node) bool {
		return len(nodes) == 1 && slices.ContainsFunc(nodes[0].Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
	})
	s.Must(s.Env.StopComponent(local.Kubelet))
	if err := s.Client.Delete(t.Context(), s.podNow("lost-worker-0")); err != nil {
		t.Fatal(err)
	}
	stuck := s.podNow("lost-worker-0")
	<-time.After(time.Until(stuck.DeletionTimestamp.Add(2 * forceDeleteAfter)))
	if p := s.podNow("lost-worker-0"); p.UID != old.UID || *p.DeletionGracePeriodSeconds != *stuck.DeletionGracePeriodSeconds {
		t.Fatalf("a pod on a Ready node was deleted by force\n%s", s.Dump())
	}

	if err := s.Env.StartComponent(local.ControllerManager); err != nil {
		t.Fatal(err)
	}
	p := s.pod("lost-worker-0", "replaced", func(p *corev1.Pod) bool { return p.UID != old.UID })
	if history.AttemptOf(p) != "1" {
		t.Errorf("the replacement is attempt %s", history.AttemptOf(p))
	}
	s.awaitEvent("lost", batch.EventNodeLost, "lost-worker-0")
	if err := s.Env.StartComponent(local.Kubelet); err != nil {
		t.Fatal(err)
	}
	s.awaitStarts("lost-worker-0", 2)
	s.awaitEnded(left) // the process of the old pod, which the node still had
	s.order("lost-worker-0", 0)
	if j := s.awaitPhase("lost", batch.JobSucceeded); j.Status.BackoffCount != 0 {
		t.Errorf("%d restarts were charged", j.Status.BackoffCount)
	}
}

// awaitFile waits until a process of the test has written the text to a file at the gate.
func (s *space) awaitFile(name, text string) {
	s.Helper()
	s.Await(fmt.Sprintf("file %s holds %q", name, text), func() error {
		if got := s.written(name); !strings.Contains(got, text) {
			return fmt.Errorf("it holds %q", got)
		}
		return nil
	})
}
