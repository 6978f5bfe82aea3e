package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tensorstack.dev/batch/internal/kinds"
)

// bind binds a cluster role to a user, in the space's namespace or, if everywhere, in all namespaces.
func (s *space) bind(user, role string, everywhere bool) {
	s.Helper()
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}
	if !everywhere {
		s.Create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user + "-" + role}, RoleRef: ref, Subjects: subjects})
		return
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace + "-" + role}, RoleRef: ref, Subjects: subjects}
	if err := s.Client.Create(s.Context(), binding); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := s.Client.Delete(s.AfterTest(), binding); err != nil {
			s.Error(err)
		}
	})
}

// can reports whether a user has a right, as `kubectl auth can-i` does.
func (s *space) can(user, namespace, verb, group, resource string) bool {
	s.Helper()
	resource, subresource, _ := strings.Cut(resource, "/")
	review, err := s.Core.AuthorizationV1().SubjectAccessReviews().Create(s.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: []string{"system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource}},
	}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return review.Status.Allowed
}

// canReadMetrics reports whether a user may get /metrics from the operator and the scheduler.
func (s *space) canReadMetrics(user string) bool {
	s.Helper()
	review, err := s.Core.AuthorizationV1().SubjectAccessReviews().Create(s.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: []string{"system:authenticated"},
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}},
	}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return review.Status.Allowed
}

// right is a set of actions with the roles that allow them. Spaces separate the verbs and the roles.
type right struct {
	verbs, group, resource, roles string
}

// namespacedRights returns the rights that TestRolesAllowWhatTheyAreFor checks in a namespace. view, edit and admin are
// Kubernetes' own roles.
func namespacedRights() []right {
	const batchGroup, schedulerGroup, boards = "batch.tensorstack.dev", "scheduler.tensorstack.dev", "tensorstack.dev"
	rights := []right{
		{"get list watch", schedulerGroup, "podgroups", "view edit admin"},
		{"create update patch delete deletecollection", schedulerGroup, "podgroups", "edit admin"},
		{"update patch", schedulerGroup, "podgroups/status", ""},
		{"get list watch", boards, "tensorboards", "view edit admin"},
		{"create update patch delete deletecollection", boards, "tensorboards", "edit admin"},
		{"update patch", boards, "tensorboards/status", ""},
		{"get", "", "pods/log", "view edit admin"},
		{"create", "", "pods/exec", "edit admin"},
		{"get", "", "secrets", "edit admin"},
		{"get list", schedulerGroup, "queues", "t9k-queue-viewer t9k-queue-user t9k-queue-manager"},
		{"use", schedulerGroup, "queues", "t9k-queue-user t9k-queue-manager"},
		{"create update patch delete", schedulerGroup, "queues", "t9k-queue-manager"},
		{"update patch", schedulerGroup, "queues/status", ""},
	}
	for _, k := range kinds.All {
		rights = append(rights,
			right{"get list watch", batchGroup, k.Plural, "view edit admin"},
			right{"create update patch delete deletecollection", batchGroup, k.Plural, "edit admin"},
			right{"get", batchGroup, k.Plural + "/status", "view edit admin"},
			right{"update patch", batchGroup, k.Plural + "/status", ""},
			right{"update", batchGroup, k.Plural + "/finalizers", ""})
		if k.Elastic {
			rights = append(rights,
				right{"get", batchGroup, k.Plural + "/scale", "view edit admin"},
				right{"update patch", batchGroup, k.Plural + "/scale", "edit admin"})
		}
	}
	return rights
}

// TestRolesAllowWhatTheyAreFor verifies that every user role has exactly the rights that namespacedRights lists, in the
// namespace of its binding, that a role that is bound in one namespace has no rights in another, and that only
// t9k-metrics-reader may read metrics.
func TestRolesAllowWhatTheyAreFor(t *testing.T) {
	s := newSpace(t)
	roles := map[string]bool{"view": false, "edit": false, "admin": false, "t9k-queue-viewer": true, "t9k-queue-user": true, "t9k-queue-manager": true,
		"t9k-metrics-reader": true}
	for role, everywhere := range roles {
		user := s.Namespace + "-" + role
		s.bind(user, role, everywhere)
		// Kubernetes aggregates the rights on jobs into its own roles, and the API server observes bindings with a
		// delay.
		s.awaitRights(role+" is in force", func() bool {
			if role == "t9k-metrics-reader" {
				return s.canReadMetrics(user)
			}
			if everywhere {
				return s.can(user, "", "get", "scheduler.tensorstack.dev", "queues")
			}
			return s.can(user, s.Namespace, "list", "batch.tensorstack.dev", "genericjobs") && s.can(user, s.Namespace, "get", "", "pods/log") &&
				(role == "view" || s.can(user, s.Namespace, "create", "batch.tensorstack.dev", "genericjobs"))
		})
		if role != "t9k-metrics-reader" && s.canReadMetrics(user) {
			t.Errorf("%s may read metrics", role)
		}
		for _, r := range namespacedRights() {
			for _, verb := range strings.Fields(r.verbs) {
				want := strings.Contains(" "+r.roles+" ", " "+role+" ")
				if want { // Kubernetes aggregates the rules of our roles one by one
					s.awaitRights(fmt.Sprintf("%s may %s %s.%s", role, verb, r.resource, r.group), func() bool {
						return s.can(user, s.Namespace, verb, r.group, r.resource)
					})
				} else if s.can(user, s.Namespace, verb, r.group, r.resource) {
					t.Errorf("%s may %s %s.%s", role, verb, r.resource, r.group)
				}
				if !everywhere && s.can(user, "default", verb, r.group, r.resource) {
					t.Errorf("%s of one namespace may %s %s.%s in another", role, verb, r.resource, r.group)
				}
			}
		}
	}
}

// awaitRights waits until the API server grants rights, which happens some time after their binding.
func (s *space) awaitRights(what string, granted func() bool) {
	s.Helper()
	s.Await(what, func() error {
		if !granted() {
			return errors.New("not all rights are granted")
		}
		return nil
	})
}
