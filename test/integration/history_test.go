package integration

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/archive/store"
	"tensorstack.dev/batch/internal/console/consolecmd"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
	"tensorstack.dev/batch/test/kit/plane"
)

// history starts t9k history with the person's token.
func (p *person) history(args ...string) *called {
	p.Helper()
	path := filepath.Join(p.TempDir(), "kubeconfig")
	p.Must(plane.WriteKubeconfig(path, &clientcmdapi.Cluster{Server: p.Env.Config.Host,
		CertificateAuthorityData: p.Env.Config.CAData, CertificateAuthority: p.Env.Config.CAFile}, &clientcmdapi.AuthInfo{Token: p.token}))
	return p.startVia(path, "", append([]string{"history", "--console", p.base}, args...)...)
}

// awaitHistory waits until t9k history prints the texts, and returns its output.
func (p *person) awaitHistory(args []string, texts ...string) string {
	p.Helper()
	var out string
	p.Await(fmt.Sprintf("history %q prints %q", args, texts), func() error {
		call := p.history(args...)
		code := <-call.code
		out = call.out.String()
		for _, text := range texts {
			if code != 0 || !strings.Contains(out, text) {
				return fmt.Errorf("exit code %d: %s%s", code, out, call.err.String())
			}
		}
		return nil
	})
	return out
}

// awaitGone waits until there is no object with the name and with the type of o.
func (w *world) awaitGone(name string, o client.Object) {
	w.Helper()
	w.Await(fmt.Sprintf("%T %s is gone", o, name), func() error {
		if err := w.Get(name, o); !apierrors.IsNotFound(err) {
			return errors.New("it exists")
		}
		return nil
	})
}

func TestHistoryOutlivesJobs(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	i := w.startConsole(consoleArchive(filepath.Join(t.TempDir(), "archive.db")))
	viewer, stranger := w.person(i, "viewer", look...), w.person(i, "stranger")
	editor := w.person(i, "editor", append(slices.Clone(look), rule("", "pods/log", "get"), rule(batch.GroupVersion.Group, "genericjobs", "create delete patch"))...)

	gone := jobs.New("short", jobs.Restarting(jobs.Role("w", 2, kubelet.Exit, "3", "0"), batch.RestartOnFailure, 3))
	now := int32(0)
	gone.Spec.TTLSecondsAfterFinished = &now
	w.Create(gone)
	w.awaitGone("short", &batch.GenericJob{})
	list := viewer.awaitHistory([]string{"list"}, "short", "Succeeded")
	if strings.Count(list, "short") != 1 {
		t.Errorf("the job is listed more than once:\n%s", list)
	}
	w.contains("the description", viewer.awaitHistory([]string{"describe", "short"}), "SuccessRuleMet", "Failed, exit code 3", "Succeeded", "History of the conditions:",
		"Gone:", "ReplicaRestarted")
	var details archive.JobDetails
	w.Must(json.Unmarshal([]byte(viewer.awaitHistory([]string{"describe", "gj/short", "-o", "json"})), &details))
	if n := len(details.Attempts); n != 4 || details.UID != string(gone.UID) {
		t.Errorf("%d attempts of job %s, want 4 of job %s", n, details.UID, gone.UID)
	}
	viewer.awaitHistory([]string{"describe", "short", "--uid", details.UID}, "SuccessRuleMet")
	for _, address := range []string{"long", "ptj/short"} {
		_, errOut := viewer.history("describe", address, "--uid", details.UID).ends(1)
		w.contains("the error", errOut, "the job with the UID "+details.UID+" is genericjob/short in namespace "+w.Namespace+", not "+address)
	}
	for _, a := range details.Attempts {
		if want := map[int]int32{0: 3, 1: 0}[a.Number]; a.ExitCode == nil || *a.ExitCode != want || a.Ended.IsZero() || a.Node == "" {
			t.Errorf("attempt %d of %s-%d: %+v", a.Number, a.Role, a.Rank, a.Attempt)
		}
	}

	held := jobs.New("held", jobs.Role("w", 1, kubelet.Run))
	held.Spec.ReplicaSpecs[0].Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"example.com/gpu": resource.MustParse("3600")}
	held.Spec.ReplicaSpecs[0].Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"example.com/gpu": resource.MustParse("3600")}
	w.Create(held)
	w.awaitPhase("held", batch.JobRunning)
	viewer.awaitHistory([]string{"usage", "--by", "namespace", "-o", "csv"}, "from,to,namespace,resource,hours", ","+w.Namespace+",example.com/gpu,")

	// A warning about a pod appears with its job, in the archive and on the page.
	pod := &corev1.Pod{}
	w.Must(w.Get("held-w-0", pod))
	w.Create(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "volume"}, Reason: "FailedMount", Message: "the volume data is not there", Type: corev1.EventTypeWarning, LastTimestamp: metav1.Now(),
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: w.Namespace, Name: pod.Name, UID: pod.UID}})
	viewer.awaitHistory([]string{"describe", "held"}, "pod/held-w-0", "the volume data is not there")
	w.Await("the page shows the warning", func() error {
		if code, body := viewer.call("GET", "/jobs/"+w.Namespace+"/genericjob/held?tab=events", nil); code != 200 || !strings.Contains(body, "the volume data is not there") {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})

	// A user who may not get jobs sees none and learns nothing about them.
	call := stranger.history("list", "-A")
	if out, errOut := call.ends(0); out != "" || !strings.Contains(errOut, "The archive has no such jobs that you may see.") {
		t.Errorf("a stranger's list:\n%s%s", out, errOut)
	}
	for _, path := range []string{"", "/logs"} {
		if code, body := stranger.call("GET", "/api/v1/history/jobs/"+string(gone.UID)+path, nil); code != 404 || !strings.Contains(body, "or you may not see it") {
			t.Errorf("a stranger gets %s: %d %s", path, code, body)
		}
	}
	if _, body := stranger.call("GET", "/api/v1/history/usage", nil); strings.Contains(body, "example.com/gpu") {
		t.Errorf("a stranger's usage: %s", body)
	}
	if code, body := viewer.call("GET", "/api/v1/history/jobs/"+string(gone.UID)+"/logs", nil); code != 403 || !strings.Contains(body, "you may not read logs") {
		t.Errorf("logs without the right to: %d %s", code, body)
	}
	// The pages show the same.
	page := "/history/" + string(gone.UID)
	for _, c := range []struct {
		who  *person
		path string
		code int
		has  string
	}{
		{viewer, "/history", 200, `href="` + page + `"`}, {viewer, page, 200, "exit code 3"}, {viewer, page + "?tab=manifest", 200, "kind: GenericJob"},
		{viewer, page + "/logs", 403, "you may not read logs"}, {viewer, "/jobs/" + w.Namespace + "/genericjob/short", 404, `href="` + page + `"`},
		{viewer, "/history/usage?by=namespace", 200, ">" + w.Namespace + "<"}, {viewer, "/history/usage.csv", 200, "example.com/gpu"},
		{editor, "/history", 200, `href="` + page + `"`}, {editor, page, 200, "exit code 3"}, {editor, page + "/logs", 200, "short"},
		{editor, "/history/usage?by=namespace", 200, ">" + w.Namespace + "<"}, {editor, "/history/usage.csv", 200, "example.com/gpu"},
		{stranger, "/history", 200, "No jobs yet"}, {stranger, page, 404, "or you may not see it"}, {stranger, page + "/logs", 404, "or you may not see it"},
		{stranger, "/history/usage", 200, "Nothing was used"}, {stranger, "/history/usage.csv", 200, "from,to,queue,resource,hours\n"},
		{stranger, "/jobs/" + w.Namespace + "/genericjob/short", 404, "or you may not see it"},
	} {
		// The console may still know the job for a moment.
		c.who.Await(fmt.Sprintf("%s gets %d with %q from %s", c.who.name, c.code, c.has, c.path), func() error {
			code, body := c.who.call("GET", c.path, nil)
			if code != c.code || !strings.Contains(body, c.has) || c.who == stranger && (strings.Contains(body, string(gone.UID)+`"`) || strings.Contains(body, "exit code 3")) {
				return fmt.Errorf("%d %s", code, body)
			}
			return nil
		})
	}
	if code, body := viewer.call("GET", "/api/v1/history/jobs?limit=many", nil); code != 400 || !strings.Contains(body, "a number from 1 to 1000") {
		t.Errorf("a wrong parameter: %d %s", code, body)
	}

	// A right that is withdrawn applies until the console's cached access review expires.
	w.Must(w.Client.Delete(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "viewer"}}))
	w.Await("the viewer sees no history", func() error {
		if code, body := viewer.call("GET", "/history", nil); code != 200 || strings.Contains(body, string(gone.UID)) {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
}

// TestHistoryCatchesUp verifies that a restarted console archives the end of a job that finished while the console was
// down and still exists, and records a job that was deleted meanwhile as deleted.
func TestHistoryCatchesUp(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	kept := consoleArchive(filepath.Join(t.TempDir(), "archive.db"))
	for _, name := range []string{"ends", "vanishes"} {
		w.Create(jobs.New(name, jobs.Role("w", 1, kubelet.Run)))
		w.awaitPhase(name, batch.JobRunning)
	}
	var viewer *person
	t.Run("up", func(t *testing.T) {
		w := w.in(t)
		viewer = w.person(w.startConsole(kept), "viewer", look...)
		viewer.awaitHistory([]string{"list"}, "ends", "vanishes")
		viewer.awaitHistory([]string{"describe", "vanishes"}, "Attempts:")
	})
	w.finish("ends-w-0", 5)
	w.awaitPhase("ends", batch.JobFailed)
	w.Must(w.Client.Delete(t.Context(), w.job("vanishes")))
	w.awaitGone("vanishes", &batch.GenericJob{})
	w.awaitGone("vanishes-w-0", &corev1.Pod{}) // otherwise the console would see the pod's end
	t.Run("up again", func(t *testing.T) {
		w := w.in(t)
		viewer = &person{w.startConsole(kept), viewer.name, viewer.token}
		viewer.awaitHistory([]string{"describe", "ends"}, "Failed, exit code 5", "FailureRuleMet")
		viewer.awaitHistory([]string{"list"}, "Deleted")
		viewer.awaitHistory([]string{"describe", "vanishes"}, "Lost", "Deleted, was Running")
	})
}

// TestArchiveOfAnotherClusterIsRefused verifies that a console does not write to the archive of another cluster until
// the archive has been assigned to its own cluster as docs/history.md describes.
func TestArchiveOfAnotherClusterIsRefused(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "archive.db")
	s, err := store.Open(t.Context(), file, store.Options{})
	w.Must(err)
	w.Must(s.Claim(t.Context(), "another-cluster"))
	w.Must(s.Close())
	var system corev1.Namespace
	w.Must(w.Client.Get(t.Context(), client.ObjectKey{Name: metav1.NamespaceSystem}, &system))

	args, _, _ := w.prepareConsole(consoleArchive(file))
	cmd := consolecmd.New()
	cmd.SetArgs(args)
	want := fmt.Sprintf("it belongs to the cluster with the UID another-cluster, and the UID of this cluster is %s", system.UID)
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("the console ends with %v, want %q", err, want)
	}

	db, err := sql.Open("sqlite", file)
	w.Must(err)
	_, err = db.ExecContext(t.Context(), "UPDATE cluster SET uid = '"+string(system.UID)+"'")
	w.Must(errors.Join(err, db.Close()))
	w.startConsole(consoleArchive(file))
}

// TestConsoleWithAnArchiveUsesExactlyItsPermissions verifies the roles of a console that archives jobs and logs. The
// pods belong to simulated kubelets, so no log is read, but each is requested.
func TestConsoleWithAnArchiveUsesExactlyItsPermissions(t *testing.T) {
	w := newWorld(t)
	for _, o := range renderedObjects(t, "../../config/console/archive_role.yaml") {
		w.Must(w.applyRendered(o))
		w.deleteLater(o)
	}
	w.awaitRightOf(consoleUser, true, authorization.ResourceAttributes{Verb: "get", Resource: "pods", Subresource: "log"})
	startOperator(t, w.Env.Kubeconfig)
	log := w.auditEnd()
	i := w.startConsole(consoleArchive(filepath.Join(t.TempDir(), "archive.db")))
	viewer := w.person(i, "viewer", look...)
	w.Create(jobs.New("job", jobs.Role("w", 1, kubelet.Exit, "0")))
	viewer.awaitHistory([]string{"describe", "job"}, "Succeeded")
	viewer.page("/")
	w.awaitUse(consoleUser, permission{verb: "get", resource: "pods/log", namespace: w.Namespace})
	w.checkUse(consoleUser, log, []string{"t9k-console", "t9k-console-archive"}, noException)
}
