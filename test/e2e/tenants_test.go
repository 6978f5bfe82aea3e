package e2e

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

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
)

// bind gives a user a cluster role: in the space's namespace, or in the whole cluster.
func (s *space) bind(user, role string, everywhere bool) {
	s.t.Helper()
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}
	if !everywhere {
		s.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user + "-" + role}, RoleRef: ref, Subjects: subjects})
		return
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: s.ns + "-" + role}, RoleRef: ref, Subjects: subjects}
	if err := s.client.Create(s.t.Context(), binding); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := s.client.Delete(afterTest(s.t), binding); err != nil {
			s.t.Error(err)
		}
	})
}

// can reports whether a user may do something, as `kubectl auth can-i` does.
func (s *space) can(user, namespace, verb, group, resource string) bool {
	s.t.Helper()
	resource, subresource, _ := strings.Cut(resource, "/")
	review, err := s.core.AuthorizationV1().SubjectAccessReviews().Create(s.t.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: []string{"system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource}},
	}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return review.Status.Allowed
}

// right is something that somebody may be allowed to do, and the roles that allow it.
type right struct {
	verbs, group, resource, roles string
}

// namespacedRights are rights within a namespace; view, edit and admin are Kubernetes' own roles.
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

// TestRolesAllowWhatTheyAreFor holds every role of people to a table: in the namespace of its binding, and in another one.
func TestRolesAllowWhatTheyAreFor(t *testing.T) {
	s := newSpace(t)
	roles := map[string]bool{"view": false, "edit": false, "admin": false, "t9k-queue-viewer": true, "t9k-queue-user": true, "t9k-queue-manager": true}
	for role, everywhere := range roles {
		user := s.ns + "-" + role
		s.bind(user, role, everywhere)
		s.until(role+" is in force", func() bool { // Kubernetes adds the rights on jobs to its own roles, and the API server learns of bindings
			if everywhere {
				return s.can(user, "", "get", "scheduler.tensorstack.dev", "queues")
			}
			return s.can(user, s.ns, "list", "batch.tensorstack.dev", "genericjobs") && s.can(user, s.ns, "get", "", "pods/log") &&
				(role == "view" || s.can(user, s.ns, "create", "batch.tensorstack.dev", "genericjobs"))
		})
		for _, r := range namespacedRights() {
			for _, verb := range strings.Fields(r.verbs) {
				want := strings.Contains(" "+r.roles+" ", " "+role+" ")
				if got := s.can(user, s.ns, verb, r.group, r.resource); got != want {
					t.Errorf("%s may %s %s.%s: %t, want %t", role, verb, r.resource, r.group, got, want)
				}
				if !everywhere && s.can(user, "default", verb, r.group, r.resource) {
					t.Errorf("%s of one namespace may %s %s.%s in another", role, verb, r.resource, r.group)
				}
			}
		}
	}
}

// until waits until cond holds.
func (s *space) until(what string, cond func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("%s has not come about within %s", what, patience)
		}
	}
}

// tenant is a user who has the role edit in the space's namespace, and may see the queues.
func (s *space) tenant() (user string, as client.Client) {
	s.t.Helper()
	user = s.ns + "-alice"
	s.bind(user, "edit", false)
	s.bind(user, "t9k-queue-viewer", true)
	config := rest.CopyConfig(s.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	as, err := client.New(config, client.Options{Scheme: s.client.Scheme()})
	if err != nil {
		s.t.Fatal(err)
	}
	s.until("the rights are in force", func() bool {
		return s.can(user, s.ns, "create", "batch.tensorstack.dev", "genericjobs") && s.can(user, s.ns, "get", "", "pods/log") &&
			s.can(user, "", "list", "scheduler.tensorstack.dev", "queues")
	})
	return user, as
}

// t9kAs calls the command line as a user and returns its output and exit code.
func (s *space) t9kAs(user string, args ...string) (out, errOut string, code int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	line := append([]string{"t9k", "--kubeconfig", s.env.Kubeconfig, "--as", user, "--as-group", "system:authenticated"}, args...)
	code = cli.Main(ctx, line, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr})
	return stdout.String(), stderr.String(), code
}

// TestTenantWithEditDoesTheGuides has a user without any other rights do what the guides show, by the command line.
func TestTenantWithEditDoesTheGuides(t *testing.T) {
	s := newSpace(t)
	user, as := s.tenant()
	do := func(args ...string) string {
		t.Helper()
		out, errOut, code := s.t9kAs(user, append([]string{"-n", s.ns}, args...)...)
		if code != 0 || strings.Contains(out+errOut, "forbidden") {
			t.Fatalf("t9k %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, errOut)
		}
		return out + errOut
	}
	do("validate", "-f", examples+"/hello/job.yaml")
	do("run", "-f", examples+"/hello/job.yaml")
	for _, c := range []struct{ want, line string }{
		{"hello", "get"}, {"Succeeded", "describe hello"}, {"Hello from replica 1", "logs hello"}, {"default", "queue list"}, {"Only namespace " + s.ns, "queue describe default"},
	} {
		if out := do(strings.Fields(c.line)...); !strings.Contains(out, c.want) {
			t.Errorf("t9k %s does not say %q:\n%s", c.line, c.want, out)
		}
	}
	job := s.newJob("work", role("w", 2, obey))
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

	elastic := s.newElastic("elastic", 1, 2, 1, role("worker", 1, obey))
	if err := as.Create(t.Context(), elastic); err != nil {
		t.Fatal(err)
	}
	do("scale", "elastic", "2")
	s.awaitStarts("elastic-worker-1", 1)
}

// TestTenantReachesNothingOfAnother has a user with the role edit in one namespace try to reach another namespace, by the API and
// through what we run.
func TestTenantReachesNothingOfAnother(t *testing.T) {
	theirs := newSpace(t)
	s := theirs.space(t)
	user, as := s.tenant()
	theirs.create(theirs.newJob("secret", role("w", 1, obey)))
	theirs.awaitPhase("secret", batch.JobRunning)

	for _, line := range []string{"get", "get secret", "describe secret", "logs secret", "exec secret -- true", "pause secret", "resume secret", "delete secret",
		"debug on secret", "tensorboard secret", "get -A", "queue describe no-such-queue"} {
		out, errOut, code := s.t9kAs(user, append([]string{"-n", theirs.ns}, strings.Fields(line)...)...)
		if code == 0 || strings.Contains(out, "Running") {
			t.Errorf("t9k %s in another's namespace: exit code %d\n%s%s", line, code, out, errOut)
		}
		if strings.HasPrefix(line, "queue") {
			continue
		}
		if !strings.Contains(errOut, "forbidden") {
			t.Errorf("t9k %s does not say what is forbidden:\n%s", line, errOut)
		}
	}

	closed := s.queue("theirs", "4", func(q *scheduling.QueueSpec) {
		q.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: theirs.ns}}
	})
	intruder := s.newJob("intruder", role("w", 1, obey))
	intruder.Spec.Scheduler = inQueue(closed)
	if err := as.Create(t.Context(), intruder); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		t.Errorf("a job in another's queue: %v", err)
	}
	intruder.Spec.Scheduler = nil
	intruder.Annotations = map[string]string{scheduling.AnnotationRequestedBy: "somebody-else"}
	if err := as.Create(t.Context(), intruder); err == nil {
		t.Error("a tenant records another requester")
	}
	board := &tensorboard.TensorBoard{ObjectMeta: metav1.ObjectMeta{Namespace: theirs.ns, Name: "board"}}
	if err := as.Create(t.Context(), board); !apierrors.IsForbidden(err) {
		t.Errorf("a TensorBoard in another's namespace: %v", err)
	}
	// What a tenant's job may do is what its pods may do: the operator adds no volume, account or privilege.
	if got := s.can(fmt.Sprintf("system:serviceaccount:%s:default", s.ns), theirs.ns, "get", "", "secrets"); got {
		t.Error("the ServiceAccount of a tenant's pods reads secrets")
	}
}
