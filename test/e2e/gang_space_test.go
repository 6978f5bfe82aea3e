package e2e

import (
	"bytes"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/test/kit/namespace"
	"tensorstack.dev/batch/test/kit/watch"
)

// queue creates a queue NAMESPACE-SUFFIX for the jobs of the test's namespace, with a quota of CPUs unless cpu is
// empty, and returns its name. The queue is deleted when the test ends.
func (s *space) queue(suffix, cpu string, change ...func(*scheduling.QueueSpec)) string {
	s.Helper()
	q := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace + "-" + suffix}, Spec: scheduling.QueueSpec{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.Namespace}}}}
	if cpu != "" {
		q.Spec.Quota.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
	for _, c := range change {
		c(&q.Spec)
	}
	if err := s.Client.Create(s.Context(), q); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { s.deleteQueue(q.Name) })
	return q.Name
}

func (s *space) deleteQueue(name string) {
	err := s.Client.Delete(s.AfterTest(), &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if client.IgnoreNotFound(err) != nil {
		s.Error(err)
	}
}

// editQueue changes a queue.
func (s *space) editQueue(name string, change func(*scheduling.QueueSpec)) {
	s.Helper()
	q := &scheduling.Queue{}
	if err := s.Client.Get(s.Context(), client.ObjectKey{Name: name}, q); err != nil {
		s.Fatal(err)
	}
	base := q.DeepCopy()
	change(&q.Spec)
	if err := s.Client.Patch(s.Context(), q, client.MergeFrom(base)); err != nil {
		s.Fatal(err)
	}
}

func quotaOf(cpu string) func(*scheduling.QueueSpec) {
	return func(q *scheduling.QueueSpec) {
		q.Quota.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
}

// requesting makes the pods of a role request CPUs.
func requesting(r batch.ReplicaSpec, cpu string) batch.ReplicaSpec {
	r.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	return r
}

func inQueue(queue string) *batch.SchedulePolicy {
	return &batch.SchedulePolicy{T9kScheduler: &batch.T9kScheduler{Queue: queue}}
}

// gang returns a job with one role for a queue. The replicas start together.
func (s *space) gang(name, queue string, r batch.ReplicaSpec) *batch.GenericJob {
	s.Helper()
	j := s.newJob(name, r)
	j.Spec.Scheduler = inQueue(queue)
	return j
}

// podGroup waits until cond holds for a PodGroup, and returns it.
func (s *space) podGroup(name, what string, cond func(*scheduling.PodGroup) bool) *scheduling.PodGroup {
	s.Helper()
	return namespace.AwaitList(s.Test, "PodGroup "+name+": "+what, &scheduling.PodGroupList{}, func(groups []*scheduling.PodGroup) bool {
		return len(groups) == 1 && cond(groups[0])
	}, watch.Named(name))[0]
}

// scheduled waits until the condition GroupScheduled of a PodGroup has the reason and a message that contains why.
func (s *space) scheduled(name string, reason, why string) {
	s.Helper()
	s.podGroup(name, reason+" "+why, func(g *scheduling.PodGroup) bool {
		for _, c := range g.Status.Conditions {
			if c.Type == scheduling.GroupScheduled {
				return c.Reason == reason && strings.Contains(c.Message, why)
			}
		}
		return false
	})
}

// awaitWaits waits until the condition of a job's PodGroup has the reason, the job reports Impossible or Unschedulable
// accordingly, and the messages of both contain the parts, of which there must be at least one.
func (s *space) awaitWaits(job, reason string, parts ...string) {
	s.Helper()
	of := batch.ReasonUnschedulable
	if reason == scheduling.ReasonImpossible {
		of = batch.ReasonImpossible
	}
	s.awaitReason(job, of, parts...)
	for _, part := range parts {
		s.scheduled(job, reason, part)
	}
}

// checkNoNode verifies that no pod of a job has a node.
func (s *space) checkNoNode(job string) {
	s.Helper()
	for _, p := range s.pods(job, "now", func([]*corev1.Pod) bool { return true }) {
		if p.Spec.NodeName != "" {
			s.Errorf("pod %s has a node", p.Name)
		}
	}
}

// t9kOutput returns the standard output of a t9k command, which must succeed.
func (s *space) t9kOutput(args ...string) string {
	s.Helper()
	var out, errs bytes.Buffer
	if code := s.t9k(s.Context(), &out, &errs, args...); code != 0 {
		s.Fatalf("t9k %v ends with %d: %s", args, code, errs.String())
	}
	return out.String()
}

// checkOutput waits until a t9k command prints the wanted texts, and logs its output. In the output, it replaces white
// space by single spaces before it compares. It waits because the objects that the command reads may be updated a
// moment after the object for which the test has waited.
func (s *space) checkOutput(args []string, want ...string) {
	s.Helper()
	line, text := strings.Join(args, " "), ""
	s.Await(fmt.Sprintf("t9k %s says %q", line, want), func() error {
		text = s.t9kOutput(args...)
		flat := strings.Join(strings.Fields(text), " ")
		for _, w := range want {
			if !strings.Contains(flat, w) {
				return fmt.Errorf("it does not say %q:\n%s", w, text)
			}
		}
		return nil
	})
	s.Logf("t9k %s\n%s", line, text)
}

// finish makes all replicas of one role of a job succeed, and waits for the job's success.
func (s *space) finish(job, role string, replicas int) {
	s.Helper()
	for rank := range replicas {
		s.order(engine.ReplicaName(job, role, rank), 0)
	}
	s.awaitPhase(job, batch.JobSucceeded)
}

func quantity(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.DecimalSI) }
