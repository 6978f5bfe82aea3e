package integration

import (
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
)

// TestCLIShowsWhatTheUserMaySee verifies that a user without rights on one kind of job sees the others and a note about
// the missing kind.
func TestCLIShowsWhatTheUserMaySee(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	w.Create(jobs.New("seen", jobs.Role("w", 1, kubelet.Run)))
	others := slices.DeleteFunc(plurals(), func(plural string) bool { return plural == "pytorchtrainingjobs" })
	rights := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "some"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{batch.GroupVersion.Group}, Resources: others, Verbs: []string{"get", "list"}},
	}}
	w.Create(rights)
	w.Create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "some"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "some"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "alice"}}})
	w.awaitPhase("seen", batch.JobRunning)
	w.Await("alice's rights are in force", func() error {
		if call := w.start("", "get", "--as=alice", "gj/seen"); <-call.code != 0 {
			return errors.New(call.err.String())
		}
		return nil
	})

	out, errOut := w.start("", "get", "--as=alice").ends(0)
	w.contains("get", out, "seen")
	w.contains("get", errOut, "Not shown: pytorchtrainingjobs.batch.tensorstack.dev is forbidden")
	out, _ = w.start("", "get", "--as=alice", "seen").ends(0)
	w.contains("get of a job", out, "seen")
	out, errOut = w.start("", "describe", "--as=alice", "seen").ends(0)
	w.contains("describe", out, "seen", "Roles:")
	w.contains("describe", errOut, "Not shown: ")
	w.contains("get of a job that does not exist", w.fails("get", "--as=alice", "sen"), "did you mean seen?", "Not listed: pytorchtrainingjobs")
	w.contains("get of a kind that is forbidden", w.fails("get", "--as=alice", "ptj/seen"), "getting ptj/seen", "forbidden")
	w.contains("get by a user without any right", w.fails("get", "--as=bob"), append(plurals(), "listing jobs", "forbidden")...)
}

// TestCLITopShowsWhatTheUserMayList verifies that `t9k top` counts the pods of the namespace for a user who may list
// neither nodes nor queues, and that it says what it leaves out.
func TestCLITopShowsWhatTheUserMayList(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	job := jobs.New("counted", jobs.Role("w", 2, kubelet.Run))
	job.Spec.ReplicaSpecs[0].Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}
	w.Create(job)
	w.awaitPhase("counted", batch.JobRunning)
	w.Create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Rules: []rbacv1.PolicyRule{rule("", "pods", "list")}})
	w.Create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "pods"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "pods"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "carol"}}})
	w.Await("carol's rights are in force", func() error {
		if call := w.start("", "top", "--as=carol"); <-call.code != 0 {
			return errors.New(call.err.String())
		}
		return nil
	})
	out, errOut := w.start("", "top", "--as=carol").ends(0)
	w.contains("top", out, "NODE ", "QUEUE ", "USER ", " 3 ")
	w.contains("top", errOut, "Only pods of namespace \""+w.Namespace+"\" are counted", "Not shown: nodes is forbidden", "Not shown: queues.scheduler.tensorstack.dev is forbidden",
		"Not shown: podgroups.scheduler.tensorstack.dev is forbidden")
	w.contains("top for a user without any right", w.fails("top", "--as=dave"), "listing pods", "forbidden")
}

// TestCLIDeletesDespiteRefusals verifies that `t9k delete` deletes and names the jobs that the user may delete, waits
// until they are gone, and reports the refusals of the others.
func TestCLIDeletesDespiteRefusals(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	w.allow("deleter", "get", "list", "watch")
	w.Create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{batch.GroupVersion.Group}, Resources: []string{"genericjobs"}, ResourceNames: []string{"b", "c"}, Verbs: []string{"delete"}},
	}})
	w.Create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "own"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "own"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "deleter"}}})
	var text string
	for _, name := range []string{"a", "b", "c"} {
		text += manifest("name: "+name, 1, 0, kubelet.Run) + "\n---\n"
	}
	w.apply(text)
	w.Await("the right to delete is in force", func() error {
		if call := w.start("", "delete", "--as=deleter", "b"); <-call.code != 0 {
			return errors.New(call.err.String())
		}
		return nil
	})
	w.apply(text)
	out, errOut := w.start(text, "delete", "--as=deleter", "-f", "-").ends(1)
	w.contains("delete -f", out, "genericjob/b is deleted\n", "genericjob/c is deleted\n")
	w.contains("delete -f", errOut, "deleting genericjob/a", "forbidden")
	if list := w.t9k("get", "-o", "name"); list != "genericjob/a\n" {
		t.Errorf("after the deletion there are %q", list)
	}
}
