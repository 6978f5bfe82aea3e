package scheduler

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/test/kit/plane"
)

// team is the name of a namespace with the labels teamLabels.
const team = "team"

// as returns a client that impersonates the user. It grants the user the rights to read, create and change jobs,
// TensorBoards, pods and PodGroups in all namespaces, but no right to use queues.
func (s *stage) as(user string) client.Client {
	s.Helper()
	config := rest.CopyConfig(s.Env.Config)
	config.Impersonate, config.WarningHandlerWithContext = rest.ImpersonationConfig{UserName: user}, rest.NoWarnings{}
	c, err := client.NewWithWatch(config, client.Options{Scheme: s.Client.Scheme()})
	s.Must(err)
	all := []string{"create", "get", "update", "patch"}
	s.allow(user, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: all},
		rbacv1.PolicyRule{APIGroups: []string{batch.GroupVersion.Group, tensorboard.GroupVersion.Group}, Resources: []string{"*"}, Verbs: all},
		rbacv1.PolicyRule{APIGroups: []string{scheduling.GroupVersion.Group}, Resources: []string{"podgroups"}, Verbs: all})
	return plane.Patient(c)
}

func (s *stage) allow(user string, rules ...rbacv1.PolicyRule) {
	s.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, Rules: rules}
	s.Must(s.Client.Create(s.Context(), role))
	s.Must(s.Client.Create(s.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}}))
}

// membersOf returns, by kind, an object of each kind that can name a queue. The objects name this queue and are in
// the namespace team.
func (s *stage) membersOf(queue string) map[string]client.Object {
	all := s.jobsOf(queue, "1")
	board := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": tensorboard.GroupVersion.String(), "kind": "TensorBoard", "metadata": map[string]any{"generateName": "m-"},
		"spec": map[string]any{"image": "none", "scheduler": map[string]any{"t9kScheduler": map[string]any{"queue": queue}},
			"trainingLogFilesets": []any{"t9k://pvc/logs/here"}}}}
	all["TensorBoard"] = board
	all["Pod"] = podOf(map[string]string{scheduling.LabelQueue: queue})
	all["PodGroup"] = &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{GenerateName: "m-"}, Spec: scheduling.PodGroupSpec{MinMember: 1, Queue: queue}}
	for _, o := range all {
		o.SetNamespace(team)
	}
	return all
}

func podOf(labels map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "m-", Namespace: team, Labels: labels},
		Spec: corev1.PodSpec{SchedulerName: scheduling.SchedulerName, Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
}

// TestAdmissionEnforcesQueuesAndLabels verifies the rules for queues and immutable labels that the API server enforces
// with policies.
func TestAdmissionEnforcesQueuesAndLabels(t *testing.T) {
	selectors := map[string]*metav1.LabelSelector{
		"nobody":     nil,
		"everybody":  {},
		"closed":     {},
		"team-a":     {MatchLabels: map[string]string{"team": "a"}},
		"team-b":     {MatchLabels: map[string]string{"team": "b"}},
		"team-in":    {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}}}},
		"team-notin": {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"a"}}}},
		"any-team":   {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: metav1.LabelSelectorOpExists}}},
		"no-team":    {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: metav1.LabelSelectorOpDoesNotExist}}},
	}
	queues := map[string]scheduling.QueueSpec{}
	for name, selector := range selectors {
		queues[name] = scheduling.QueueSpec{NamespaceSelector: selector}
	}
	s := ruleStage(t, queues)
	alice := s.as("alice")
	t.Run("who may use a queue", func(t *testing.T) { s.with(t).whoMayUse(alice) })
	t.Run("closed queues", func(t *testing.T) { s.with(t).closedToJobs(alice) })
	t.Run("TensorBoards", func(t *testing.T) { s.with(t).boardsMove(alice) })
	t.Run("groups", func(t *testing.T) { s.with(t).admissionOfGroups(alice) })
	t.Run("labels", func(t *testing.T) { s.with(t).labelsStay() })
	t.Run("labels of the pods of jobs", func(t *testing.T) { s.with(t).podsStayInTheirJob(alice) })
}

// whoMayUse verifies that a user can create an object in a queue only if the queue selects the namespace of the object
// or the user has the right to use the queue.
func (s *stage) whoMayUse(alice client.Client) {
	check := func(user client.Client, queue string, ok bool) {
		s.Helper()
		words := fmt.Sprintf("queue %s is not for namespace team, which its namespaceSelector does not select, and alice has no right to use it: "+
			"ask for the verb \"use\" on it, or choose another queue", queue)
		for kind, o := range s.membersOf(queue) {
			err := user.Create(s.Context(), o, client.DryRunAll)
			expected := err == nil || apierrors.IsForbidden(err) && strings.Contains(err.Error(), words)
			if (err == nil) != ok || !expected {
				s.Errorf("a %s in queue %s: %v", kind, queue, err)
			}
		}
	}
	if n := len(s.membersOf("")); n != len(kinds.All)+3 {
		s.Errorf("the test covers %d kinds", n)
	}
	for queue, ok := range map[string]bool{"nobody": false, "everybody": true, "team-a": true, "team-b": false, "team-in": true, "team-notin": false,
		"any-team": true, "no-team": false, "missing": true} {
		check(alice, queue, ok)
		check(s.Client, queue, true) // an administrator has all verbs
	}
	s.allow("alice", rbacv1.PolicyRule{APIGroups: []string{scheduling.GroupVersion.Group}, Resources: []string{"queues"}, ResourceNames: []string{"team-b"}, Verbs: []string{"use"}})
	s.Await("the right to use the queue is in force", func() error {
		return alice.Create(s.Context(), s.membersOf("team-b")["GenericJob"], client.DryRunAll)
	})
	check(alice, "team-b", true)
	check(alice, "nobody", false)
	pod := podOf(map[string]string{scheduling.LabelQueue: "nobody"})
	pod.Spec.SchedulerName = corev1.DefaultSchedulerName // the label alone determines the queue
	if err := alice.Create(s.Context(), pod, client.DryRunAll); !apierrors.IsForbidden(err) {
		s.Errorf("a pod of the default scheduler with the label of a queue: %v", err)
	}
}

// closedToJobs verifies that new jobs and TensorBoards cannot enter a closed queue, that pods and PodGroups can, and
// that the objects in the queue can still be changed.
func (s *stage) closedToJobs(alice client.Client) {
	inside := s.membersOf("closed")
	for _, o := range inside {
		s.Must(alice.Create(s.Context(), o))
	}
	s.changeQueue("closed", func(q *scheduling.QueueSpec) { q.Closed = true })
	refused := func(user client.Client, o client.Object) error {
		err := user.Create(s.Context(), o, client.DryRunAll)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "queue closed is closed and takes no new jobs: choose another one") {
			return fmt.Errorf("a %T: %w", o, err)
		}
		return nil
	}
	s.Await("no job enters a closed queue", func() error { return refused(alice, s.membersOf("closed")["GenericJob"]) })
	for kind, o := range s.membersOf("closed") {
		switch kind {
		case "Pod", "PodGroup": // the operator must still create the objects of jobs in the queue
			s.Must(alice.Create(s.Context(), o, client.DryRunAll))
		default:
			for _, user := range []client.Client{alice, s.Client} {
				if err := refused(user, o.DeepCopyObject().(client.Object)); err != nil {
					s.Error(err)
				}
			}
		}
	}
	for kind, o := range inside {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"mine":"yes"}}}`))
		if _, err := kinds.ByName(kind); err == nil {
			patch = client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"runMode":{"pause":{"enabled":true}}}}`))
		}
		if err := alice.Patch(s.Context(), o, patch); err != nil {
			s.Errorf("changing a %s in the closed queue: %v", kind, err)
		}
	}
}

// boardsMove verifies that a TensorBoard can be moved only to a queue that its requester may use and that is not
// closed.
func (s *stage) boardsMove(alice client.Client) {
	free := s.membersOf("everybody")["TensorBoard"].(*unstructured.Unstructured)
	unstructured.RemoveNestedField(free.Object, "spec", "scheduler")
	for _, board := range []*unstructured.Unstructured{free, s.membersOf("everybody")["TensorBoard"].(*unstructured.Unstructured)} {
		s.Must(alice.Create(s.Context(), board))
		for queue, words := range map[string]string{"team-a": "", "nobody": "queue nobody is not for namespace team", "closed": "queue closed is closed"} {
			moved := board.DeepCopy()
			s.Must(unstructured.SetNestedField(moved.Object, queue, "spec", "scheduler", "t9kScheduler", "queue"))
			err := alice.Update(s.Context(), moved, client.DryRunAll)
			if (err == nil) != (words == "") || err != nil && !strings.Contains(err.Error(), words) {
				s.Errorf("moving a TensorBoard to queue %s: %v", queue, err)
			}
		}
	}
}

// admissionOfGroups verifies that the API server checks the queue that a pod names itself and the queue of a group. For
// a pod that names no queue, it checks nothing, because the scheduler checks the right of the pod's requester. A group
// whose requester has lost the right to its queue may still be changed.
func (s *stage) admissionOfGroups(alice client.Client) {
	s.changeQueue(scheduling.DefaultQueue, func(q *scheduling.QueueSpec) { q.NamespaceSelector = nil })
	s.Await("the default queue is closed to all namespaces", func() error {
		if err := alice.Create(s.Context(), podOf(map[string]string{scheduling.LabelQueue: scheduling.DefaultQueue}), client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("a pod: %w", err)
		}
		return nil
	})
	group := &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "g", Namespace: team}, Spec: scheduling.PodGroupSpec{MinMember: 1, Queue: "team-a"}}
	s.Must(alice.Create(s.Context(), group))
	for name, test := range map[string]struct {
		labels map[string]string
		ok     bool
	}{
		"a group":                       {map[string]string{scheduling.LabelGroupName: "g"}, true},
		"a group and its queue":         {map[string]string{scheduling.LabelGroupName: "g", scheduling.LabelQueue: "team-a"}, true},
		"a group and a forbidden queue": {map[string]string{scheduling.LabelGroupName: "g", scheduling.LabelQueue: "nobody"}, false},
		"nothing":                       {map[string]string{"a": "b"}, true},
		"an empty group":                {map[string]string{scheduling.LabelGroupName: ""}, true},
		"an empty queue":                {map[string]string{scheduling.LabelQueue: ""}, false},
		"a group and an empty queue":    {map[string]string{scheduling.LabelGroupName: "g", scheduling.LabelQueue: ""}, true},
		"the default queue":             {map[string]string{scheduling.LabelQueue: scheduling.DefaultQueue}, false},
	} {
		if err := alice.Create(s.Context(), podOf(test.labels), client.DryRunAll); (err == nil) != test.ok || err != nil && !apierrors.IsForbidden(err) {
			s.Errorf("a pod that names %s: %v", name, err)
		}
	}
	for queue, ok := range map[string]bool{"team-in": true, "nobody": false, scheduling.DefaultQueue: false} {
		moved := group.DeepCopy()
		moved.Spec.Queue = queue
		if err := alice.Update(s.Context(), moved, client.DryRunAll); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "queue "+queue+" is not for namespace team") {
			s.Errorf("moving the group to queue %s: %v", queue, err)
		}
	}
	s.changeQueue("team-a", func(q *scheduling.QueueSpec) { q.NamespaceSelector = nil })
	s.Await("the queue of the group is closed to all namespaces", func() error {
		if err := alice.Create(s.Context(), s.membersOf("team-a")["PodGroup"], client.DryRunAll); err == nil {
			return fmt.Errorf("another group entered it")
		}
		return nil
	})
	group.Spec.Priority = 3
	if err := alice.Update(s.Context(), group); err != nil {
		s.Errorf("changing a group that stays in its queue: %v", err)
	}
}

// labelsStay verifies that the labels of the scheduler cannot change on a live pod and that other labels can.
func (s *stage) labelsStay() {
	pod := podOf(map[string]string{scheduling.LabelQueue: "everybody"})
	s.Must(s.Client.Create(s.Context(), pod))
	kept := func(change func(map[string]string)) error {
		p := pod.DeepCopy()
		change(p.Labels)
		err := s.Client.Update(s.Context(), p, client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "cannot change on a live pod: create a new pod") {
			return fmt.Errorf("labels %v: %w", p.Labels, err)
		}
		return nil
	}
	s.Await("the policy is in force", func() error { return kept(func(l map[string]string) { l[scheduling.LabelQueue] = "team-in" }) })
	for _, change := range []func(map[string]string){
		func(l map[string]string) { delete(l, scheduling.LabelQueue) },
		func(l map[string]string) { l[scheduling.LabelGroupName] = "g" },
		func(l map[string]string) { l[scheduling.LabelRole] = "r" },
	} {
		if err := kept(change); err != nil {
			s.Error(err)
		}
	}
	pod.Labels["mine"] = "yes"
	s.Must(s.Client.Update(s.Context(), pod))
}

// podsStayInTheirJob verifies that a pod that a job controls keeps the labels by which the operator finds it,
// regardless of its scheduler. If the labels are missing, for example because the policy did not exist for a while, a
// user who may use all queues can add them again, as the operator does.
func (s *stage) podsStayInTheirJob(alice client.Client) {
	controlled := func(scheduler string, labels map[string]string) *corev1.Pod {
		p := podOf(labels)
		p.Spec.SchedulerName = scheduler
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: batch.GroupVersion.String(), Kind: "GenericJob", Name: "job", UID: "1", Controller: new(true)}}
		s.Must(s.Client.Create(s.Context(), p))
		return p
	}
	own := map[string]string{batch.LabelJobName: "job", batch.LabelJobKind: "GenericJob", batch.LabelReplicaType: "w", batch.LabelReplicaRank: "0",
		batch.LabelReplicaAttempt: "0", "mine": "yes"}
	put := func(as client.Client, pod *corev1.Pod, label, value string) error {
		p := pod.DeepCopy()
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		if p.Labels[label] = value; value == "" {
			delete(p.Labels, label)
		}
		return as.Update(s.Context(), p, client.DryRunAll)
	}
	for _, scheduler := range []string{corev1.DefaultSchedulerName, scheduling.SchedulerName} {
		pod, lost := controlled(scheduler, own), controlled(scheduler, map[string]string{"mine": "yes"})
		bare := controlled(scheduler, nil)
		for _, test := range []struct {
			what         string
			pod          *corev1.Pod
			label, value string
			// alice and admin report whether the API server accepts the change from each of them.
			alice, admin bool
		}{
			{"loses its job", pod, batch.LabelJobName, "", false, false},
			{"moves to another job", pod, batch.LabelJobName, "other", false, false},
			{"gets another rank", pod, batch.LabelReplicaRank, "1", false, true},
			{"loses its attempt", pod, batch.LabelReplicaAttempt, "", false, true},
			{"changes otherwise", pod, "mine", "no", true, true},
			{"gets its job back", lost, batch.LabelJobName, "job", false, true},
			{"gets its job back as the only label", bare, batch.LabelJobName, "job", false, true},
			{"gets the name of another job", lost, batch.LabelJobName, "other", false, false},
		} {
			for name, as := range map[string]client.Client{"alice": alice, "an administrator": s.Client} {
				ok := test.alice
				if name != "alice" {
					ok = test.admin
				}
				err := put(as, test.pod, test.label, test.value)
				if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "identify the job of a pod and cannot change on a live pod") {
					s.Errorf("by %s a pod of the %s %s: %v", name, scheduler, test.what, err)
				}
			}
		}
	}
	free := podOf(map[string]string{batch.LabelJobName: "any"})
	free.Spec.SchedulerName = corev1.DefaultSchedulerName
	s.Must(alice.Create(s.Context(), free))
	if err := put(alice, free, batch.LabelJobName, ""); err != nil {
		s.Errorf("a pod without a job: %v", err)
	}
}
