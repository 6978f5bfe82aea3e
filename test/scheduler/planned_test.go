package scheduler

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// TestQueueRightIsCheckedWhenPlanned verifies that the scheduler checks the requester's right to the queue when it
// plans a group or pod, because the queue may have been created, or its selector changed, after the group or pod.
func TestQueueRightIsCheckedWhenPlanned(t *testing.T) {
	s := quietStage(t)
	s.node("n", 8, nil)
	alice, bob := s.as(s.own("alice")), s.as(s.own("bob"))
	s.mayUse(s.own("bob"), s.own("later"))
	group := func(as client.Client, name, queue string) {
		s.Must(as.Create(t.Context(), &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.Namespace},
			Spec: scheduling.PodGroupSpec{MinMember: 1, Queue: s.own(queue)}}))
	}
	pod := func(as client.Client, name string, labels map[string]string) {
		p := podOf(labels)
		p.Name, p.GenerateName, p.Namespace = name, "", s.Namespace
		s.Must(as.Create(t.Context(), p))
	}
	of := func(name string) map[string]string { return map[string]string{scheduling.LabelGroupName: name} }
	in := func(queue string) map[string]string { return map[string]string{scheduling.LabelQueue: s.own(queue)} }

	// The queue is created after its groups.
	group(alice, "hers", "later")
	pod(alice, "hers-0", of("hers"))
	pod(alice, "single", in("later"))
	group(bob, "his", "later")
	pod(bob, "his-0", of("his"))
	pod(alice, "intruder", of("his"))
	ofJob := map[string]string{scheduling.LabelGroupName: "job", batch.LabelJobName: "job"}
	group(s.Client, "job", "later")
	pod(s.Client, "job-0", ofJob) // as the operator does
	noted := &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "noted", Namespace: s.Namespace,
		Annotations: map[string]string{scheduling.AnnotationRequestedBy: fmt.Sprintf("[%q]", s.own("bob"))}}, Spec: scheduling.PodGroupSpec{MinMember: 1, Queue: s.own("later")}}
	s.Must(s.Client.Create(t.Context(), noted))
	pod(s.Client, "noted-0", map[string]string{scheduling.LabelGroupName: "noted", batch.LabelJobName: "noted"})
	time.Sleep(time.Second) // creation times have a resolution of one second
	s.awaitReason("hers", scheduling.ReasonQueueNotFound)
	s.queue("later", "", 0, func(q *scheduling.QueueSpec) { q.NamespaceSelector = nil })
	s.awaitPod("his-0")
	s.awaitPod("noted-0")
	s.awaitReason("job", scheduling.ReasonNotAdmitted)
	s.awaitReason("hers", scheduling.ReasonNotAdmitted)
	words := fmt.Sprintf("%s has no right to use it", s.own("alice"))
	for _, name := range []string{"single", "intruder"} {
		s.awaitPodReports(name, words)
	}

	// The selector stops selecting the namespace while a group waits.
	s.queue("narrowed", "1", 0)
	group(alice, "first", "narrowed")
	s.pod("first-0", "1", func(p *corev1.Pod) { p.Labels = of("first") })
	s.awaitPod("first-0")
	group(alice, "second", "narrowed")
	p := podOf(of("second"))
	p.Name, p.GenerateName, p.Namespace, p.Spec.Containers[0].Resources.Requests = "second-0", "", s.Namespace, cpus("1")
	s.Must(alice.Create(t.Context(), p))
	s.awaitReason("second", scheduling.ReasonQuotaExceeded)
	s.changeQueue("narrowed", func(q *scheduling.QueueSpec) { q.NamespaceSelector = nil; q.Quota.Requests = cpus("2") })
	s.awaitReason("second", scheduling.ReasonNotAdmitted)
	s.unbound("job-0", "hers-0", "single", "intruder", "second-0")

	// The requester is granted the right, or the queue selects the namespace.
	s.changeQueue("later", func(q *scheduling.QueueSpec) {
		q.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"open": "yes"}}
	})
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}}
	s.Must(s.TryUpdate(ns, func() { ns.Labels = map[string]string{"open": "yes"} }))
	for _, name := range []string{"hers-0", "single", "intruder", "job-0"} {
		s.awaitPod(name)
	}
	s.mayUse(s.own("alice"), s.own("narrowed"))
	s.awaitPod("second-0")
}

// TestPodsOfOtherSchedulersCountAgainstQuota verifies that a pod that names a queue and was bound by another scheduler
// counts against the queue's quota.
func TestPodsOfOtherSchedulersCountAgainstQuota(t *testing.T) {
	s := quietStage(t)
	s.node("n", 8, nil)
	s.queue("full", "2", 0)
	guest := podOf(map[string]string{scheduling.LabelQueue: s.own("full")})
	guest.Name, guest.GenerateName, guest.Namespace, guest.Spec.SchedulerName = "guest", "", s.Namespace, "another"
	guest.Spec.Containers[0].Resources.Requests = cpus("2")
	s.Must(s.Client.Create(t.Context(), guest))
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: guest.Name, Namespace: guest.Namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: s.own("n")}}
	s.Must(s.Core.CoreV1().Pods(guest.Namespace).Bind(t.Context(), binding, metav1.CreateOptions{}))
	s.group("ours", "full", 1, "1")
	s.awaitReason("ours", scheduling.ReasonQuotaExceeded)
	s.Must(s.Client.Delete(t.Context(), guest, client.GracePeriodSeconds(0)))
	s.awaitPod("ours-0")
}

// awaitPodReports waits until the message of a pod's condition PodScheduled contains the words.
func (s *stage) awaitPodReports(name, words string) {
	s.Helper()
	s.Await("pod "+name+" reports that "+words, func() error {
		p := &corev1.Pod{}
		s.Must(s.Client.Get(s.Context(), client.ObjectKey{Namespace: s.Namespace, Name: name}, p))
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && strings.Contains(c.Message, words) {
				return nil
			}
		}
		return fmt.Errorf("node %q, %+v", p.Spec.NodeName, p.Status.Conditions)
	})
}

// unbound verifies that none of the pods is bound.
func (s *stage) unbound(names ...string) {
	s.Helper()
	for _, name := range names {
		p := &corev1.Pod{}
		s.Must(s.Client.Get(s.Context(), client.ObjectKey{Namespace: s.Namespace, Name: name}, p))
		if p.Spec.NodeName != "" {
			s.Errorf("pod %s has started", name)
		}
	}
}
