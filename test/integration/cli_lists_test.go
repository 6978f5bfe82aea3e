package integration

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/kubelet"
	"tensorstack.dev/batch/test/kit/namespace"
)

// TestCLISelectsJobsByLabels verifies that verbs for several jobs select the jobs by labels, or select all jobs of a
// namespace, and that `t9k get --watch` shows the changes of such a list.
func TestCLISelectsJobsByLabels(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	list := w.start("", "get", "--watch", "-l", "team=vision")
	list.awaitOutput(fmt.Sprintf("No such jobs in namespace %q.", w.Namespace))
	for name, team := range map[string]string{"a": "vision", "b": "vision", "c": "speech"} {
		w.start(manifest("name: "+name+", labels: {team: "+team+"}", 1, 0, kubelet.Run), "run", "-d", "-").ends(0)
		w.awaitPhase(name, batch.JobRunning)
	}
	list.awaitOutput("genericjob/b  Running")
	if got := w.t9k("get", "-l", "team=vision", "-o", "name"); got != "genericjob/a\ngenericjob/b\n" {
		t.Errorf("get -l lists %q", got)
	}
	w.finish("b-worker-0", 0)
	list.awaitOutput("genericjob/b  Succeeded")

	// A finished job does not prevent pause from pausing the others.
	if out := w.t9k("pause", "-l", "team=vision"); out != "genericjob/a is pausing\n" {
		t.Errorf("pause -l: %q", out)
	}
	w.awaitPhase("a", batch.JobPaused)
	list.awaitOutput("genericjob/a  Paused")
	if phase := w.job("c").Status.Phase; phase != batch.JobRunning {
		t.Errorf("a job with other labels is %s", phase)
	}
	w.contains("resume --all", w.t9k("resume", "--all"), "genericjob/a is resuming", "genericjob/c is not paused")
	w.contains("resume -o yaml of two jobs", w.t9k("resume", "a", "c", "-o", "yaml"), "kind: List\n", "name: a\n", "name: c\n")
	if out := w.t9k("resume", "c", "-o", "yaml"); strings.Contains(out, "kind: List") {
		t.Errorf("resume -o yaml of one job prints a list:\n%s", out)
	}
	w.t9k("delete", "-l", "team=vision")
	list.awaitOutput("genericjob/a  was deleted")
	if out := list.out.String(); strings.Contains(out, "genericjob/c") {
		t.Errorf("the list has a job with other labels:\n%s", out)
	}
	list.interrupt()
	list.ends(130)
	w.contains("top", w.t9k("top"), "NODE ", "QUEUE ", "USER ", "CPU", "MEMORY")
	w.contains("delete --all", w.t9k("delete", "--all"), "genericjob/c is deleted")
	_, errOut := w.start("", "delete", "--all").ends(0)
	w.contains("delete --all of nothing", errOut, "No such jobs in namespace")
}

// TestCLIRunsAgain verifies that a job can be run again as a copy or as a replacement, and that a manifest can be a
// directory or a URL.
func TestCLIRunsAgain(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	dir := t.TempDir()
	first := fmt.Sprintf(settings, "1") + manifest("name: job, annotations: {note: mine}", 1, 0, kubelet.Run)
	w.Must(os.WriteFile(filepath.Join(dir, "job.yaml"), []byte(first), 0o600))
	w.Must(os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("no manifest"), 0o600))
	w.contains("run of a directory", w.t9k("run", "-d", dir), "configmap/settings created", "genericjob/job created")
	w.awaitPhase("job", batch.JobRunning)
	w.t9k("pause", "job")
	w.awaitPhase("job", batch.JobPaused)

	w.contains("rerun", w.t9k("rerun", "job", "-d"), "genericjob/job-2 created as a copy of genericjob/job\n")
	w.awaitPhase("job-2", batch.JobRunning)
	if note := w.job("job-2").Annotations["note"]; note != "mine" {
		t.Errorf("the copy's annotation is %q", note)
	}
	if got := w.t9k("rerun", "job", "-d", "-o", "name"); got != "genericjob/job-3\n" {
		t.Errorf("the second copy is %q", got)
	}
	w.contains("rerun under a name that is taken", w.fails("rerun", "job", "--name", "job-2"), "already exists")
	long := strings.Repeat("n", 53)
	w.contains("rerun under a name that is too long", w.fails("rerun", "job", "--name", long+long), "the limit is 63")

	// A replacement may change fields that are immutable in a live job.
	changed := strings.Replace(first, "replicas: 1", "replicas: 2", 1)
	web := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/job.yaml" {
			http.NotFound(rw, r)
			return
		}
		fmt.Fprint(rw, changed)
	}))
	t.Cleanup(web.Close)
	w.contains("run of a missing page", w.fails("run", "-d", web.URL+"/jobs.yaml"), "the server answers 404")
	w.contains("run of a change", w.fails("run", "-d", web.URL+"/job.yaml"), "applying genericjob/job")
	old := w.job("job").UID
	w.contains("run --replace", w.t9k("run", "-d", "--replace", web.URL+"/job.yaml"), "genericjob/job deleted\n", "genericjob/job created\n")
	w.awaitPhase("job", batch.JobRunning)
	if j := w.job("job"); j.UID == old || *j.Spec.ReplicaSpecs[0].Replicas != 2 {
		t.Errorf("the job has UID %s and %d replicas", j.UID, *j.Spec.ReplicaSpecs[0].Replicas)
	}
	// If the API server would refuse the replacement, run --replace deletes nothing.
	now := w.job("job").UID
	w.start(strings.Replace(changed, "image: none", "image: none, workingDir: [1]", 1), "run", "-d", "--replace", "-").ends(1)
	if w.job("job").UID != now {
		t.Error("an invalid manifest has deleted the job")
	}

	out, errOut := w.start("", "delete", "-f", dir).ends(0)
	w.contains("delete -f", out+errOut, "configmap/settings is not a job and is kept", "genericjob/job is deleted")
	if err := namespace.Gone(w.Get("job", &batch.GenericJob{})); err != nil {
		t.Errorf("after delete -f, the job: %v", err)
	}
	_, errOut = w.start("", "delete", "-f", dir).ends(0)
	w.contains("delete -f of nothing", errOut, "genericjob/job does not exist")
}
