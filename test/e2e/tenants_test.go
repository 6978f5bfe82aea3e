package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/cli"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/test/kit/await"
	"tensorstack.dev/batch/test/kit/gate"
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

// right is a set of actions with the roles that allow them.
type right struct {
	verbs, group, resource, roles string
}

// namespacedRights returns the rights within a namespace; view, edit and admin are Kubernetes' own roles.
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
	}
	return append(rights,
		right{"get", batchGroup, "pytorchtrainingjobs/scale", "view edit admin"},
		right{"update patch", batchGroup, "pytorchtrainingjobs/scale", "edit admin"})
}

// TestRolesAllowWhatTheyAreFor compares every role for people with a table, in the namespace of its binding and in
// another one.
func TestRolesAllowWhatTheyAreFor(t *testing.T) {
	s := newSpace(t)
	roles := map[string]bool{"view": false, "edit": false, "admin": false, "t9k-queue-viewer": true, "t9k-queue-user": true, "t9k-queue-manager": true,
		"t9k-metrics-reader": true}
	for role, everywhere := range roles {
		user := s.Namespace + "-" + role
		s.bind(user, role, everywhere)
		// Kubernetes aggregates the rights on jobs into its own roles, and the API server reads bindings with a
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
				if want { // Kubernetes' own roles get the rules of one role of ours after the other
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

// awaitRights waits until the API server grants rights, which happens with a delay after a binding.
func (s *space) awaitRights(what string, granted func() bool) {
	s.Helper()
	s.Await(what, func() error {
		if !granted() {
			return errors.New("not all rights are granted")
		}
		return nil
	})
}

// tenant returns a user with the role edit in the space's namespace and the right to read queues.
func (s *space) tenant() (user string, as client.Client) {
	s.Helper()
	user = s.Namespace + "-alice"
	s.bind(user, "edit", false)
	s.bind(user, "t9k-queue-viewer", true)
	config := rest.CopyConfig(s.Env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	as, err := client.New(config, client.Options{Scheme: s.Client.Scheme()})
	if err != nil {
		s.Fatal(err)
	}
	s.awaitRights("the rights are in force", func() bool {
		return s.can(user, s.Namespace, "create", "batch.tensorstack.dev", "genericjobs") && s.can(user, s.Namespace, "get", "", "pods/log") &&
			s.can(user, "", "list", "scheduler.tensorstack.dev", "queues")
	})
	return user, as
}

// t9kAs runs the command line as a user and returns its output and exit code.
func (s *space) t9kAs(user string, args ...string) (out, errOut string, code int) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), await.Patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	line := append([]string{"t9k", "--kubeconfig", s.Env.Kubeconfig, "--as", user, "--as-group", "system:authenticated"}, args...)
	code = cli.Main(ctx, line, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr})
	return stdout.String(), stderr.String(), code
}

// TestTenantWithEditDoesTheGuides verifies that a user with only the role edit can follow the guides with the command
// line.
func TestTenantWithEditDoesTheGuides(t *testing.T) {
	s := newSpace(t)
	user, as := s.tenant()
	do := func(args ...string) string {
		t.Helper()
		out, errOut, code := s.t9kAs(user, append([]string{"-n", s.Namespace}, args...)...)
		if code != 0 || strings.Contains(out+errOut, "forbidden") {
			t.Fatalf("t9k %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, errOut)
		}
		return out + errOut
	}
	do("validate", "-f", examples+"/hello/job.yaml")
	do("run", "-f", examples+"/hello/job.yaml")
	for _, c := range []struct{ want, line string }{
		{"hello", "get"}, {"Succeeded", "describe hello"}, {"Hello from replica 1", "logs hello"}, {"default", "queue list"}, {"Only namespace " + s.Namespace, "queue describe default"},
	} {
		if out := do(strings.Fields(c.line)...); !strings.Contains(out, c.want) {
			t.Errorf("the output of t9k %s lacks %q:\n%s", c.line, c.want, out)
		}
	}
	job := s.newJob("work", role("w", 2, gate.Obey))
	if err := as.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	s.awaitPhase("work", batch.JobRunning)
	do("exec", "work", "--", "true")
	do("pause", "work")
	s.awaitPhase("work", batch.JobPaused)
	do("resume", "work")
	s.awaitPhase("work", batch.JobRunning)
	do("debug", "on", "work")
	do("debug", "off", "work")
	do("describe", "work")
	do("delete", "work")

	elastic := s.newElastic("elastic", 1, 2, 1, role("worker", 1, gate.Obey))
	if err := as.Create(t.Context(), elastic); err != nil {
		t.Fatal(err)
	}
	do("scale", "elastic", "2")
	s.awaitStarts("elastic-worker-1", 1)
}

// TestTenantReachesNothingOfAnother verifies that a user with the role edit in one namespace cannot reach another
// namespace, through the API or through the programs of this repository.
func TestTenantReachesNothingOfAnother(t *testing.T) {
	theirs := newSpace(t)
	s := newSpaceOn(t, theirs.Plane)
	user, as := s.tenant()
	theirs.Create(theirs.newJob("secret", role("w", 1, gate.Obey)))
	theirs.awaitPhase("secret", batch.JobRunning)

	for _, line := range []string{"get", "get secret", "describe secret", "logs secret", "exec secret -- true", "pause secret", "resume secret", "delete secret",
		"debug on secret", "tensorboard secret", "get -A", "queue describe no-such-queue"} {
		out, errOut, code := s.t9kAs(user, append([]string{"-n", theirs.Namespace}, strings.Fields(line)...)...)
		if code == 0 || strings.Contains(out, "Running") {
			t.Errorf("t9k %s in another's namespace: exit code %d\n%s%s", line, code, out, errOut)
		}
		if strings.HasPrefix(line, "queue") {
			continue
		}
		if !strings.Contains(errOut, "forbidden") {
			t.Errorf("the output of t9k %s lacks the refusal:\n%s", line, errOut)
		}
	}

	closed := s.queue("theirs", "4", func(q *scheduling.QueueSpec) {
		q.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: theirs.Namespace}}
	})
	intruder := s.newJob("intruder", role("w", 1, gate.Obey))
	intruder.Spec.Scheduler = inQueue(closed)
	s.Await("a job in another's queue is refused", func() error { // the API server hears of a queue a moment later
		if err := as.Create(t.Context(), intruder.DeepCopy(), client.DryRunAll); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			return fmt.Errorf("the answer is %w", err)
		}
		return nil
	})
	intruder.Spec.Scheduler = nil
	intruder.Annotations = map[string]string{scheduling.AnnotationRequestedBy: "somebody-else"}
	if err := as.Create(t.Context(), intruder); err == nil {
		t.Error("a tenant recorded another author")
	}
	board := &tensorboard.TensorBoard{ObjectMeta: metav1.ObjectMeta{Namespace: theirs.Namespace, Name: "board"}}
	if err := as.Create(t.Context(), board); !apierrors.IsForbidden(err) {
		t.Errorf("a TensorBoard in another's namespace: %v", err)
	}
	// The rights of a tenant's job are those of its pods: the operator adds no volume, account or privilege.
	if got := s.can(fmt.Sprintf("system:serviceaccount:%s:default", s.Namespace), theirs.Namespace, "get", "", "secrets"); got {
		t.Error("the ServiceAccount of a tenant's pods may read secrets")
	}
}
