package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
)

// allow gives a user rights on the GenericJobs of the world's namespace, and waits until the user may list them. The
// verbs must include list.
func (w *world) allow(user string, verbs ...string) {
	w.Helper()
	rule := rbacv1.PolicyRule{APIGroups: []string{batch.GroupVersion.Group}, Resources: []string{"genericjobs"}, Verbs: verbs}
	w.Create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{rule}})
	w.Create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}})
	w.Await("the rights of "+user+" are in force", func() error {
		if call := w.start("", "get", "--as="+user); <-call.code != 0 {
			return errors.New(call.err.String())
		}
		return nil
	})
}

// TestCLIRunsWithoutManifest verifies that flags can describe a job, and that --dry-run prints the manifest of the same
// job.
func TestCLIRunsWithoutManifest(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	command := []string{"--", kubelet.Exit, "0"}
	flags := []string{"run", "--name", "flags", "--image", "none", "--replicas", "2", "--env", "RATE=0.1", "--logs=none"}
	w.contains("run", w.t9k(append(flags, command...)...), "genericjob/flags created\n", "genericjob/flags Succeeded in")
	main := w.job("flags").Spec.ReplicaSpecs[0].Template.Spec.Containers[0]
	if n := *w.job("flags").Spec.ReplicaSpecs[0].Replicas; n != 2 || main.Image != "none" || len(main.Env) != 1 || main.Env[0].Value != "0.1" {
		t.Errorf("the job has %d replicas of %+v", n, main)
	}

	printed := w.t9k("run", "--name", "trains", "--image", "none", "--kind", "pytorch", "--dry-run", "-o", "yaml", "--", "run")
	if list := w.t9k("get", "-o", "name"); list != "genericjob/flags\n" {
		t.Errorf("after a dry run there are %q", list)
	}
	out, _ := w.start(printed, "run", "-d", "-").ends(0)
	w.contains("run of the printed manifest", out, "pytorchtrainingjob/trains created")
	w.awaitPyTorch("trains", batch.JobRunning, 1) // a status write between two requests would change the output
	out = w.t9k("run", "-d", "--name", "trains", "--image", "none", "--kind", "pytorch", "--", "run")
	w.contains("run of the same flags", out, "pytorchtrainingjob/trains unchanged")
}

// TestCLIReplacesOnlyWithAllRights verifies that `t9k run --replace` deletes nothing for a user who may delete jobs but
// not create them.
func TestCLIReplacesOnlyWithAllRights(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	w.apply(manifest("name: job", 1, 0, kubelet.Run))
	uid := w.job("job").UID
	w.allow("deleter", "get", "list", "watch", "delete", "patch")
	_, errOut := w.start(manifest("name: job", 2, 0, kubelet.Run), "run", "--as=deleter", "--replace", "-d", "-").ends(1)
	w.contains("run --replace", errOut, "applying genericjob/job", "forbidden", `cannot create`)
	if j := w.job("job"); j.UID != uid || j.DeletionTimestamp != nil {
		t.Error("the job was deleted")
	}
	// With all rights, the same manifest replaces the job.
	w.allow("owner", "get", "list", "watch", "delete", "patch", "create")
	out, _ := w.start(manifest("name: job", 2, 0, kubelet.Run), "run", "--as=owner", "--replace", "-d", "-").ends(0)
	w.contains("run --replace", out, "genericjob/job deleted\n", "genericjob/job created\n")
}

// TestCLIReplacesAllOrNothing verifies that `t9k run --replace` deletes no job if the API server would refuse another
// deletion or another new job of the manifest.
func TestCLIReplacesAllOrNothing(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	text := manifest("name: a", 1, 0, kubelet.Run) + "\n---\n" + manifest("name: b", 1, 0, kubelet.Run)
	w.apply(text)
	a, b := w.job("a").UID, w.job("b").UID
	kept := func(when string) {
		t.Helper()
		for name, uid := range map[string]types.UID{"a": a, "b": b} {
			if j := w.job(name); j.UID != uid || j.DeletionTimestamp != nil {
				t.Errorf("%s: job %s was deleted", when, name)
			}
		}
	}
	w.Create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{batch.GroupVersion.Group}, Resources: []string{"genericjobs"}, ResourceNames: []string{"a"}, Verbs: []string{"delete"}},
	}})
	w.Create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "own"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "own"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "owner"}}})
	w.allow("owner", "get", "list", "watch", "patch", "create")
	_, errOut := w.start(text, "run", "--as=owner", "--replace", "-d", "-").ends(1)
	w.contains("run --replace of a job that may not be deleted", errOut, "deleting genericjob/b", "forbidden", "No job was deleted")
	kept("a refused deletion")

	text = strings.ReplaceAll(text, "metadata: {", "metadata: {namespace: "+w.Namespace+", ")
	elsewhere := manifest("name: c, namespace: none-of-that-name", 1, 0, kubelet.Run)
	_, errOut = w.start(elsewhere+"\n---\n"+text, "run", "--namespace=", "--replace", "-d", "-").ends(1)
	w.contains("run --replace of a job in a missing namespace", errOut, "applying genericjob/c", "not found", "No job was deleted")
	kept("a missing namespace")
}

// TestCLIRerunsScaledJob verifies that a copy of an elastic job has the size that the job was scaled to, and can be
// scaled itself.
func TestCLIRerunsScaledJob(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	w.apply(fmt.Sprintf(elasticManifest, "job"))
	w.awaitPyTorch("job", batch.JobRunning, 2)
	w.t9k("scale", "job", "4")
	w.awaitPyTorch("job", batch.JobRunning, 4)
	w.t9k("rerun", "-d", "job")
	w.awaitPyTorch("job-2", batch.JobRunning, 4)
	w.t9k("scale", "job-2", "3")
	w.awaitPyTorch("job-2", batch.JobRunning, 3)
	if n := w.pytorch("job").Status.Replicas; n != 4 {
		t.Errorf("scaling the copy has scaled the job to %d", n)
	}
}

// TestCLIListsThroughAnOutage verifies that the list of `t9k get --watch` shows the changes after an outage.
func TestCLIListsThroughAnOutage(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	w.Create(jobs.New("job", jobs.Role("w", 1, kubelet.Run)))
	w.awaitPhase("job", batch.JobRunning)
	list := w.start("", "get", "--watch")
	list.awaitOutput("Running")
	w.Must(w.Env.StopComponent(local.APIServer))
	list.awaitOutput("the API server does not answer; trying again: ")
	w.Must(w.Env.StartComponent(local.APIServer))
	w.Must(w.Env.AwaitReady(t.Context()))
	list.awaitOutput("the API server answers again")
	// The column of names is as wide as the longest name so far, so the list must show the second job before the
	// first one ends.
	w.Create(jobs.New("later", jobs.Role("w", 1, kubelet.Run)))
	list.awaitOutput("genericjob/later  ")
	w.finish("job-w-0", 0)
	list.awaitOutput("genericjob/job    Succeeded")
	list.awaitOutput("genericjob/later  Running")
	list.interrupt()
	list.ends(130)
	w.t9k("delete", "later")
	_, errOut := w.start("", "pause", "--all").ends(0)
	w.contains("pause --all of jobs that have ended", errOut, "Nothing to do: genericjob/job has ended and never runs again.")
}
