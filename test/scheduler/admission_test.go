package scheduler

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/testenv"
)

// as is a client that somebody else uses, who may create and change everything in all namespaces but has no right to queues.
func (s *stage) as(user string) client.Client {
	s.Helper()
	config := rest.CopyConfig(s.env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	c, err := client.New(config, client.Options{Scheme: s.client.Scheme()})
	s.must(err)
	s.allow(user, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create", "get", "update"}},
		rbacv1.PolicyRule{APIGroups: []string{batch.GroupVersion.Group}, Resources: []string{"genericjobs"}, Verbs: []string{"create"}},
		rbacv1.PolicyRule{APIGroups: []string{scheduling.GroupVersion.Group}, Resources: []string{"podgroups"}, Verbs: []string{"create"}})
	return c
}

func (s *stage) allow(user string, rules ...rbacv1.PolicyRule) {
	s.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, Rules: rules}
	s.must(s.client.Create(s.Context(), role))
	s.must(s.client.Create(s.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}}))
}

// members are one object of each kind that names a queue.
func members(namespace, queue string) map[string]client.Object {
	meta := metav1.ObjectMeta{GenerateName: "m-", Namespace: namespace}
	containers := []corev1.Container{{Name: "main", Image: "none"}}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{SchedulerName: scheduling.SchedulerName, Containers: containers}}
	pod.Labels = map[string]string{scheduling.LabelQueue: queue}
	return map[string]client.Object{
		"pod":   pod,
		"group": &scheduling.PodGroup{ObjectMeta: meta, Spec: scheduling.PodGroupSpec{MinMember: 1, Queue: queue}},
		"job": &batch.GenericJob{ObjectMeta: meta, Spec: batch.GenericJobSpec{
			Scheduler:    &batch.SchedulePolicy{T9kScheduler: &batch.T9kScheduler{Queue: queue}},
			ReplicaSpecs: []batch.ReplicaSpec{{Type: "worker", Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: containers}}}}}},
	}
}

// TestAdmission: clauses 6 and 7, and labels that cannot change.
func TestAdmission(t *testing.T) {
	s := newStageOf(t, testenv.Options{Components: []string{local.Etcd, local.APIServer, local.CRDs}})
	s.must(s.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{"team": "a"}}}))
	selectors := map[string]*metav1.LabelSelector{
		"nobody":     nil,
		"everybody":  {},
		"team-a":     {MatchLabels: map[string]string{"team": "a"}},
		"team-b":     {MatchLabels: map[string]string{"team": "b"}},
		"team-in":    {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}}}},
		"team-notin": {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"a"}}}},
		"no-team":    {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: metav1.LabelSelectorOpDoesNotExist}}},
	}
	for name, selector := range selectors {
		s.must(s.client.Create(t.Context(), &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: scheduling.QueueSpec{NamespaceSelector: selector}}))
	}
	alice := s.as("alice")
	s.await("the rules hold", func() error {
		if err := alice.Create(t.Context(), members("team", "nobody")["group"], client.DryRunAll); err == nil {
			return fmt.Errorf("a group may use a queue that is for nobody")
		}
		return nil
	})
	want := map[string]bool{"nobody": false, "everybody": true, "team-a": true, "team-b": false, "team-in": true, "team-notin": false, "no-team": false, "missing": true}
	check := func(c client.Client, queue string, ok bool) {
		t.Helper()
		for kind, o := range members("team", queue) {
			err := c.Create(t.Context(), o, client.DryRunAll)
			told := err == nil || apierrors.IsForbidden(err) && strings.Contains(err.Error(), "queue "+queue+" is")
			if (err == nil) != ok || !told {
				t.Errorf("a %s in queue %s: %v", kind, queue, err)
			}
		}
	}
	for queue, ok := range want {
		check(alice, queue, ok)
	}
	s.allow("alice", rbacv1.PolicyRule{APIGroups: []string{scheduling.GroupVersion.Group}, Resources: []string{"queues"}, ResourceNames: []string{"team-b"}, Verbs: []string{"use"}})
	s.await("the right to use a queue counts", func() error {
		return alice.Create(t.Context(), members("team", "team-b")["job"], client.DryRunAll)
	})
	check(alice, "team-b", true)
	check(alice, "nobody", false)

	q := &scheduling.Queue{}
	s.must(s.client.Get(t.Context(), client.ObjectKey{Name: "everybody"}, q))
	q.Spec.Closed = true
	s.must(s.client.Update(t.Context(), q))
	s.await("no job enters a closed queue", func() error {
		err := s.client.Create(t.Context(), members("team", "everybody")["job"], client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "queue everybody is closed") {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})

	pod := members("team", "team-a")["pod"]
	s.must(s.client.Create(t.Context(), pod))
	for _, change := range []func(map[string]string){
		func(l map[string]string) { l[scheduling.LabelQueue] = "team-in" },
		func(l map[string]string) { delete(l, scheduling.LabelQueue) },
		func(l map[string]string) { l[scheduling.LabelGroupName] = "g" },
		func(l map[string]string) { l[scheduling.LabelRole] = "r" },
	} {
		p := pod.DeepCopyObject().(*corev1.Pod)
		change(p.Labels)
		if err := s.client.Update(t.Context(), p); err == nil || !strings.Contains(err.Error(), "cannot change on a live pod") {
			t.Errorf("labels %v: %v", p.Labels, err)
		}
	}
	p := pod.DeepCopyObject().(*corev1.Pod)
	p.Labels["mine"] = "yes"
	s.must(s.client.Update(t.Context(), p))
}
