package scheduler

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
)

// mayUse grants a user the right to use a queue. An empty name means all queues.
func (s *stage) mayUse(user, queue string) {
	s.Helper()
	rule := rbacv1.PolicyRule{APIGroups: []string{scheduling.GroupVersion.Group}, Resources: []string{"queues"}, Verbs: []string{"use"}}
	if queue != "" {
		rule.ResourceNames = []string{queue}
	}
	s.allow(user, rule)
}

// byAlice is the value of the annotation that records the requester if alice is the requester.
const byAlice = `["alice","system:authenticated"]`

// refusedWith returns an error unless err is the error Forbidden with a message that contains the words.
func refusedWith(err error, words string) error {
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), words) {
		return fmt.Errorf("the answer is %w, want one with %q", err, words)
	}
	return nil
}

// TestAdmissionPoliciesProtectQueues verifies that the API server records requesters and rejects forged ones, that pods
// cannot choose a node, that namespaces can require queues, and that queues limit priorities.
func TestAdmissionPoliciesProtectQueues(t *testing.T) {
	least, most := int32(10), int32(20)
	s := ruleStage(t, map[string]scheduling.QueueSpec{free: {NamespaceSelector: &metav1.LabelSelector{}}, "vip": {},
		"bounded": {NamespaceSelector: &metav1.LabelSelector{}, GroupPriority: &scheduling.PriorityRange{Min: &least, Max: &most}}})
	alice, operator := s.as("alice"), s.as("operator")
	s.mayUse("operator", "")
	s.Await("the policies are in force", func() error {
		pod := podOf(nil)
		pod.Spec.NodeName = "any"
		var errs []error
		pods := s.membersOf(free)["Pod"]
		errs = append(errs, alice.Create(t.Context(), pods, client.DryRunAll), isBy(pods, byAlice))
		forged := s.membersOf(free)["PodGroup"]
		forged.SetAnnotations(map[string]string{scheduling.AnnotationRequestedBy: `["operator"]`})
		errs = append(errs, refusedWith(alice.Create(t.Context(), forged, client.DryRunAll), "only the API server may set the annotation"))
		errs = append(errs, refusedWith(s.Client.Create(t.Context(), pod, client.DryRunAll), "leave nodeName out"),
			operator.Create(t.Context(), s.membersOf("vip")["PodGroup"], client.DryRunAll),
		)
		return errors.Join(errs...)
	})
	t.Run("requesters", func(t *testing.T) { s.with(t).protectedRequesters(alice, operator) })
	t.Run("pods", func(t *testing.T) { s.with(t).podsOfQueues(alice, operator) })
	t.Run("priorities", func(t *testing.T) { s.with(t).priorities(alice) })
	t.Run("namespaces", func(t *testing.T) { s.with(t).namespaceLabels(alice) })
}

// isBy returns an error unless the annotation that records the requester of an object has the value want.
func isBy(o client.Object, want string) error {
	if got := o.GetAnnotations()[scheduling.AnnotationRequestedBy]; got != want {
		return fmt.Errorf("the requester of a %T is %s, want %s", o, got, want)
	}
	return nil
}

// protectedRequesters verifies that users cannot forge, change or remove the recorded requester of an object, and that
// the operator, which may use all queues, can record another user as the requester.
func (s *stage) protectedRequesters(alice, operator client.Client) {
	const forged = `["operator","system:masters"]`
	for kind, o := range s.membersOf(free) {
		o.SetAnnotations(map[string]string{scheduling.AnnotationRequestedBy: forged})
		err := alice.Create(s.Context(), o.DeepCopyObject().(client.Object), client.DryRunAll)
		if kind != "Pod" { // the API server overwrites the annotation of a pod
			err = refusedWith(err, "only the API server may set the annotation")
		}
		if err != nil {
			s.Errorf("a %s with a forged requester: %v", kind, err)
		}
		o.SetAnnotations(map[string]string{scheduling.AnnotationRequestedBy: byAlice})
		s.Must(operator.Create(s.Context(), o))
		if err := isBy(o, byAlice); err != nil {
			s.Errorf("an object that the operator creates for alice: %s: %v", kind, err)
		}
		o.SetAnnotations(map[string]string{scheduling.AnnotationRequestedBy: forged})
		err = alice.Update(s.Context(), o)
		if kind == "Pod" {
			err = errors.Join(err, isBy(o, byAlice))
		} else {
			err = refusedWith(err, "only the API server may set the annotation")
		}
		if err != nil {
			s.Errorf("changing the requester of a %s: %v", kind, err)
		}
		if kind != "Pod" {
			o.SetAnnotations(nil)
			if err := refusedWith(alice.Update(s.Context(), o), "only the API server may set the annotation"); err != nil {
				s.Errorf("removing the requester of a %s: %v", kind, err)
			}
		}
	}
	for name, annotations := range map[string]map[string]string{"kept": {"mine": "yes"}, "removed": nil, "forged": {scheduling.AnnotationRequestedBy: forged}} {
		pod := s.membersOf(free)["Pod"]
		pod.SetAnnotations(annotations)
		s.Must(alice.Create(s.Context(), pod))
		s.Must(isBy(pod, byAlice))
		pod.SetAnnotations(annotations)
		s.Must(alice.Update(s.Context(), pod))
		if err := isBy(pod, byAlice); err != nil {
			s.Errorf("%s: %v", name, err)
		}
	}
}

// podsOfQueues verifies that nobody can create a pod with both the label of a queue and a node, that alice cannot
// create a pod with the label of a job, and that she cannot add or change this label on a live pod.
func (s *stage) podsOfQueues(alice, operator client.Client) {
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := podOf(map[string]string{scheduling.LabelQueue: free})
		change(p)
		return p
	}
	node := pod(func(p *corev1.Pod) { p.Spec.NodeName = "any" })
	guest := pod(func(p *corev1.Pod) { p.Spec.NodeName, p.Spec.SchedulerName = "any", corev1.DefaultSchedulerName })
	ofJob := pod(func(p *corev1.Pod) { p.Labels[batch.LabelJobName] = "any" })
	for _, user := range []client.Client{alice, operator, s.Client} {
		for _, p := range []*corev1.Pod{node, guest} {
			if err := refusedWith(user.Create(s.Context(), p.DeepCopy(), client.DryRunAll), "leave nodeName out"); err != nil {
				s.Error(err)
			}
		}
	}
	if err := refusedWith(alice.Create(s.Context(), ofJob.DeepCopy(), client.DryRunAll), "the label batch.tensorstack.dev/job-name is for the pods"); err != nil {
		s.Error(err)
	}
	s.Must(operator.Create(s.Context(), ofJob))
	ofJob.Labels[batch.LabelJobName] = "other"
	if err := alice.Update(s.Context(), ofJob, client.DryRunAll); err == nil {
		s.Error("a live pod was moved to another job")
	}
	free := podOf(nil)
	s.Must(alice.Create(s.Context(), free))
	free.Labels = map[string]string{batch.LabelJobName: "any"}
	if err := alice.Update(s.Context(), free, client.DryRunAll); err == nil {
		s.Error("a live pod becomes one of a job")
	}
}

// priorities verifies that the API server refuses jobs and groups whose priority is outside of the range of their
// queue.
func (s *stage) priorities(alice client.Client) {
	const words = "queue bounded takes groups of the priorities 10 to 20, not "
	fields := map[string][]string{"PodGroup": {"spec", "priority"}}
	for _, k := range kinds.All {
		fields[k.Name] = []string{"spec", "scheduler", "t9kScheduler", "priority"}
	}
	for kind, field := range fields {
		o := asMap(s, s.membersOf("bounded")[kind])
		if err := refusedWith(alice.Create(s.Context(), o.DeepCopy(), client.DryRunAll), words+"0"); err != nil {
			s.Errorf("%s without a priority: %v", kind, err)
		}
		s.Must(unstructured.SetNestedField(o.Object, int64(20), field...))
		s.Must(alice.Create(s.Context(), o))
		s.Must(unstructured.SetNestedField(o.Object, int64(21), field...))
		if err := refusedWith(alice.Update(s.Context(), o.DeepCopy(), client.DryRunAll), words+"21"); err != nil {
			s.Errorf("changing %s: %v", kind, err)
		}
		s.Must(unstructured.SetNestedField(o.Object, int64(10), field...))
		s.Must(alice.Update(s.Context(), o))
	}
}

// namespaceLabels verifies the label that makes a namespace refuse jobs and TensorBoards without a queue, and the label
// that gives a namespace a default queue.
func (s *stage) namespaceLabels(alice client.Client) {
	without := func(namespace, kind string) *unstructured.Unstructured {
		o := asMap(s, s.membersOf(free)[kind])
		o.SetNamespace(namespace)
		unstructured.RemoveNestedField(o.Object, "spec", "scheduler")
		return o
	}
	for name, label := range map[string][2]string{"strict": {scheduling.LabelRequireQueue, "true"}, "generous": {scheduling.LabelDefaultQueue, free},
		"stingy": {scheduling.LabelDefaultQueue, "vip"}} {
		s.Must(s.Client.Create(s.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{label[0]: label[1]}}}))
	}
	for kind := range s.membersOf(free) {
		if kind == "Pod" || kind == "PodGroup" {
			continue
		}
		s.Await("a "+kind+" without a queue is refused", func() error {
			return refusedWith(alice.Create(s.Context(), without("strict", kind), client.DryRunAll), "namespace strict takes no "+kind+" without a queue")
		})
		named := asMap(s, s.membersOf(free)[kind])
		named.SetNamespace("strict")
		s.Must(alice.Create(s.Context(), named, client.DryRunAll))
		s.Await("a "+kind+" without a queue gets one", func() error {
			o := without("generous", kind)
			err := alice.Create(s.Context(), o, client.DryRunAll)
			if queue, _, _ := unstructured.NestedString(o.Object, "spec", "scheduler", "t9kScheduler", "queue"); err == nil && queue != free {
				return fmt.Errorf("it is in queue %q", queue)
			}
			return err
		})
		s.Await("a "+kind+" without a queue does not enter a queue that is not for its namespace", func() error {
			return refusedWith(alice.Create(s.Context(), without("stingy", kind), client.DryRunAll), "queue vip is not for namespace stingy")
		})
	}
	board := map[string]any{"image": "none", "trainingLogFilesets": []any{"t9k://pvc/logs/here"}}
	job := without("strict", "PyTorchTrainingJob")
	job.Object["spec"].(map[string]any)["scheduler"] = map[string]any{"t9kScheduler": map[string]any{"queue": free}}
	job.Object["spec"].(map[string]any)["tensorboardSpec"] = board
	if err := refusedWith(alice.Create(s.Context(), job, client.DryRunAll), "takes no TensorBoard without a queue"); err != nil {
		s.Error(err)
	}
	job.SetNamespace("generous")
	s.Must(alice.Create(s.Context(), job, client.DryRunAll))
	if queue, _, _ := unstructured.NestedString(job.Object, "spec", "tensorboardSpec", "scheduler", "t9kScheduler", "queue"); queue != free {
		s.Errorf("the job's TensorBoard is in queue %q", queue)
	}
}
