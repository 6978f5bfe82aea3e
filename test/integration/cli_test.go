package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/cli"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/test/kit/apiproxy"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
	"tensorstack.dev/batch/test/kit/namespace"
	"tensorstack.dev/batch/test/kit/program"
)

// called is a call of t9k, which may still be running.
type called struct {
	*world
	args     []string
	out, err program.Log
	// interrupt has the effect of Ctrl-C.
	interrupt context.CancelFunc
	// code receives the exit code when the call has finished.
	code chan int
}

// start starts t9k with the text stdin as standard input, in the world's namespace.
func (w *world) start(stdin string, args ...string) *called {
	w.Helper()
	return w.startVia(w.Env.Kubeconfig, stdin, args...)
}

func (w *world) startVia(kubeconfig, stdin string, args ...string) *called {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	w.Cleanup(cancel)
	c := &called{world: w, args: args, interrupt: cancel, code: make(chan int, 1)}
	// The program's own flags come first, because it does not parse arguments after --.
	line := append([]string{"t9k", "--kubeconfig", kubeconfig, "-n", w.Namespace}, args...)
	go func() {
		c.code <- cli.Main(ctx, line, genericiooptions.IOStreams{In: strings.NewReader(stdin), Out: &c.out, ErrOut: &c.err})
	}()
	return c
}

// awaitOutput waits until the call has written the text.
func (c *called) awaitOutput(text string) {
	c.Helper()
	c.Await(fmt.Sprintf("t9k %s writes %q", strings.Join(c.args, " "), text), func() error {
		if all := c.out.String() + c.err.String(); !strings.Contains(all, text) {
			return fmt.Errorf("it has written:\n%s", all)
		}
		return nil
	})
}

// ends waits until the call has finished, checks its exit code, and returns its output.
func (c *called) ends(code int) (out, errOut string) {
	c.Helper()
	var got int
	c.Await("t9k "+strings.Join(c.args, " ")+" ends", func() error {
		select {
		case got = <-c.code:
			return nil
		default:
			return fmt.Errorf("it has written:\n%s%s", c.out.String(), c.err.String())
		}
	})
	out, errOut = c.out.String(), c.err.String()
	if got != code {
		c.Errorf("t9k %s: exit code %d, want %d; it has written:\n%s%s", strings.Join(c.args, " "), got, code, out, errOut)
	}
	return out, errOut
}

// t9k runs t9k, checks that it succeeds, and returns its standard output.
func (w *world) t9k(args ...string) string {
	w.Helper()
	out, _ := w.start("", args...).ends(0)
	return out
}

// fails runs t9k, checks that it fails, and returns its standard error.
func (w *world) fails(args ...string) string {
	w.Helper()
	_, errOut := w.start("", args...).ends(1)
	return errOut
}

// contains checks that the text, which is the output of what, contains each of the wanted strings.
func (w *world) contains(what, text string, wanted ...string) {
	w.Helper()
	for _, s := range wanted {
		if !strings.Contains(text, s) {
			w.Errorf("the output of %s lacks %q:\n%s", what, s, text)
		}
	}
}

// manifest returns the manifest of a GenericJob with one role. meta is the content of its metadata. command controls
// the simulated kubelet.
func manifest(meta string, replicas int, restarts int, command ...string) string {
	quoted, _ := json.Marshal(command)
	return fmt.Sprintf(`
apiVersion: batch.tensorstack.dev/v1beta1
kind: GenericJob
metadata: {%s}
spec:
  replicaSpecs:
    - type: worker
      replicas: %d
      restartPolicy: {policy: OnFailure, limit: %d}
      template:
        spec:
          containers:
            - {name: main, image: none, command: %s}
`, meta, replicas, restarts, quoted)
}

const settings = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {rate: "%s"}
---
`

func TestCLIRunFollowsAJobToItsEnd(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	text := fmt.Sprintf(settings, "1") + manifest("name: good", 5, 0, kubelet.Exit, "0")

	out, _ := w.start(text, "run", "-f", "-").ends(0)
	w.contains("run", out, "configmap/settings created\ngenericjob/good created\n", "Following genericjob/good in namespace "+w.Namespace,
		"genericjob/good Succeeded in ", ", 0 restarts\n")

	out, errOut := w.start(text, "run", "-f", "-").ends(0)
	w.contains("a second run", out, "configmap/settings unchanged\ngenericjob/good unchanged\n", "genericjob/good Succeeded in ")
	w.contains("a second run", errOut, "genericjob/good has ended and never runs again")

	out, _ = w.start(manifest("generateName: named-", 1, 0, kubelet.Exit, "0"), "run", "-f", "-", "--detach", "-o", "name").ends(0)
	name := strings.TrimSpace(strings.TrimPrefix(out, "genericjob/"))
	if !strings.HasPrefix(name, "named-") || len(name) == len("named-") {
		t.Fatalf("run -o name wrote %q", out)
	}
	w.awaitPhase(name, batch.JobSucceeded)
}

func TestCLIRunReportsRestartsAndFailure(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	file := filepath.Join(t.TempDir(), "job.yaml")
	text := manifest("name: good", 1, 0, kubelet.Exit, "0") + "---" + manifest("name: bad", 2, 1, kubelet.Exit, "3")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ := w.start("", "run", "-f", file).ends(1)
	// A restart may happen before run observes the replica, so only the summary surely contains it. One or both
	// replicas have restarted when the job fails.
	if !strings.Contains(out, ", 1 restart\n") && !strings.Contains(out, ", 2 restarts\n") {
		t.Errorf("run does not tell of the restarts:\n%s", out)
	}
	w.contains("run", out, "Failed: exit code 3", "genericjob/good Succeeded", "genericjob/bad Failed in ",
		"Replica bad-worker-", "has failed with exit code 3", " failed: exit code 3\n", "t9k logs genericjob/bad -n "+w.Namespace)
}

func TestCLIRunRefusesBeforeItChangesAnything(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	bad := fmt.Sprintf(settings, "1") + strings.ReplaceAll(manifest("name: bad", 1, 0, kubelet.Run), "replicas:", "replica:")
	_, errOut := w.start(bad, "run", "-f", "-").ends(1)
	w.contains("run of a bad manifest", errOut, `: spec.replicaSpecs[0].replica: unknown field; did you mean "replicas"?`, "nothing was applied")
	if err := namespace.Gone(w.Get("settings", &corev1.ConfigMap{})); err != nil {
		t.Errorf("the ConfigMap beside the bad job: %v", err)
	}

	w.start(fmt.Sprintf(settings, "1")+manifest("name: job", 1, 0, kubelet.Run), "run", "-f", "-", "-d").ends(0)
	_, errOut = w.start(fmt.Sprintf(settings, "2")+manifest("name: job", 2, 0, kubelet.Run), "run", "-f", "-", "-d").ends(1)
	w.contains("run of a forbidden change", errOut, "applying genericjob/job", "create a new job")
	kept := &corev1.ConfigMap{}
	w.Must(w.Get("settings", kept))
	if kept.Data["rate"] != "1" {
		t.Errorf("the ConfigMap beside the refused change has rate %s", kept.Data["rate"])
	}
	// Changes that a live job allows are applied.
	out, _ := w.start(fmt.Sprintf(settings, "2")+manifest("name: job", 1, 5, kubelet.Run), "run", "-f", "-", "-d").ends(0)
	w.contains("run of a change", out, "configmap/settings configured\ngenericjob/job configured\n")
	if limit := w.job("job").Spec.ReplicaSpecs[0].RestartPolicy.Limit; *limit != 5 {
		t.Errorf("the restart limit is %d", *limit)
	}
}

func TestCLIWatchesJobAfterDetach(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	run := w.start(manifest("name: job", 2, 0, kubelet.Run), "run", "-f", "-")
	run.awaitOutput("genericjob/job  Running")
	run.interrupt()
	out, _ := run.ends(130)
	w.contains("detaching", out, "Stopped following; genericjob/job continues.", "t9k get genericjob/job --watch -n "+w.Namespace)

	p := apiproxy.Start(t, w.Env.Config)
	watch := w.startVia(p.Kubeconfig, "", "get", "job", "--watch")
	watch.awaitOutput("genericjob/job  Running")
	w.finish("job-worker-0", 0)
	watch.awaitOutput("worker-0")
	w.finish("job-worker-1", 0)
	out, _ = watch.ends(0)
	w.contains("get --watch", out, "genericjob/job  Succeeded", "genericjob/job Succeeded in")
	// The verb does not poll: it sends one request for each kind to find the job, then a list and a watch.
	if n := len(p.Seen("GET", "")); n > len(kinds.All)+2 {
		t.Errorf("%d requests to follow a job: %v", n, p.Seen("GET", ""))
	}
}

func TestCLIFollowsThroughAnOutage(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	run := w.start(manifest("name: job", 1, 0, kubelet.Run), "run", "-f", "-")
	run.awaitOutput("genericjob/job  Running")
	w.Must(w.Env.StopComponent(local.APIServer))
	run.awaitOutput("the API server does not answer; trying again: ")
	w.Must(w.Env.StartComponent(local.APIServer))
	w.Must(w.Env.AwaitReady(t.Context()))
	run.awaitOutput("the API server answers again")
	w.finish("job-worker-0", 0)
	run.ends(0)
}

func TestCLIPausesResumesAndDebugs(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	w.Create(jobs.New("job", jobs.Role("w", 2, kubelet.Run)))
	w.awaitPhase("job", batch.JobRunning)

	w.contains("pause", w.t9k("pause", "gj/job"), "genericjob/job is pausing\n")
	w.awaitPhase("job", batch.JobPaused)
	w.awaitNoPods()
	w.contains("pausing twice", w.t9k("pause", "job"), "genericjob/job is paused already\n")
	w.contains("debugging a paused job", w.t9k("debug", "on", "job"), "is going into debug mode\n", "t9k resume job")
	w.contains("exec in a paused job", w.fails("exec", "job", "--", "true"), "there is no pod job-w-0: genericjob/job is Paused")
	w.contains("resume", w.t9k("resume", "job"), "genericjob/job is resuming\n")
	debugged := w.awaitPhase("job", batch.JobRunning)
	if debugged.Status.RunMode != batch.RunDebug {
		t.Errorf("the run mode is %s", debugged.Status.RunMode)
	}
	w.contains("debug off", w.t9k("debug", "off", "job", "-o", "yaml"), "kind: GenericJob\n", "enabled: false\n")
	w.Await("the job leaves the debug mode without a restart", func() error {
		if mode := w.job("job").Status.RunMode; mode == batch.RunDebug {
			return fmt.Errorf("the run mode is %s", mode)
		}
		for name, pod := range w.pods() {
			if mode := pod.Annotations[batch.AnnotationRunMode]; mode == string(batch.RunDebug) {
				return fmt.Errorf("pod %s has the mode %s", name, mode)
			}
		}
		return nil
	})
	for _, pod := range []string{"job-w-0", "job-w-1"} {
		w.finish(pod, 0)
	}
	w.awaitPhase("job", batch.JobSucceeded)
	w.contains("pausing a finished job", w.fails("pause", "job"), "genericjob/job has finished (Succeeded)")
}

func TestCLIGetsAndDescribes(t *testing.T) {
	w := newWorld(t)
	w.contains("get without jobs", w.start("", "get").succeeds(), fmt.Sprintf("No jobs in namespace %q.", w.Namespace))
	startOperator(t, w.Env.Kubeconfig)
	w.Create(jobs.New("runs", jobs.Role("w", 2, kubelet.Run)))
	w.Create(jobs.New("waits", jobs.Role("w", 1, kubelet.Wait)))
	w.awaitPhase("runs", batch.JobRunning)
	w.Await("the operator has seen the job", func() error {
		if w.job("waits").Status.Phase != batch.JobPending {
			return fmt.Errorf("it is %q", w.job("waits").Status.Phase)
		}
		return nil
	})

	lines := strings.Split(w.t9k("get"), "\n")
	for i, want := range [][]string{{"KIND", "NAME", "PHASE", "READY", "RESTARTS", "AGE"}, {"GenericJob", "runs", "Running", "2/2", "0"}, {"GenericJob", "waits", "Pending", "0/1", "0"}} {
		if fields := strings.Fields(lines[i]); len(fields) != 6 || strings.Join(fields[:len(want)], " ") != strings.Join(want, " ") {
			t.Errorf("line %d of get is %q, want %v", i, lines[i], want)
		}
	}
	w.contains("get -o wide", w.t9k("get", "-o", "wide", "runs"), "QUEUE", "START", "WAITED", "RAN")
	w.contains("get -A", w.t9k("get", "-A"), "NAMESPACE", w.Namespace)
	if got := w.t9k("get", "-o", "name"); got != "genericjob/runs\ngenericjob/waits\n" {
		t.Errorf("get -o name: %q", got)
	}
	var list struct {
		Kind  string
		Items []batch.GenericJob
	}
	if err := json.Unmarshal([]byte(w.t9k("get", "-o", "json")), &list); err != nil || list.Kind != "List" || len(list.Items) != 2 {
		t.Errorf("get -o json: %v, %s of %d", err, list.Kind, len(list.Items))
	}
	w.contains("get -o yaml", w.t9k("get", "genericjobs/runs", "-o", "yaml"), "kind: GenericJob\n", "phase: Running\n")
	w.contains("a wrong name", w.fails("get", "rums"), fmt.Sprintf(`no job "rums" in namespace %q; did you mean runs?`, w.Namespace))
	w.contains("a wrong kind", w.fails("get", "tfjob/runs"), `"tfjob" is not a kind of job; the kinds are: genericjob`)

	w.Await("an event tells that the job has begun", func() error {
		if all := w.events("waits"); !slices.ContainsFunc(all, func(e string) bool { return strings.HasPrefix(e, "JobStarted: ") }) {
			return fmt.Errorf("the events are %q", all)
		}
		return nil
	})
	w.contains("describe", w.t9k("describe", "waits"), "Name: ", "waits", "Phase: ", "Pending", "Why: ", "0 of 1 replicas run.",
		"Conditions:", "Roles:", "OnFailure, at most 0 each", "Replicas:", "w-0", "Events:", "JobStarted", "genericjob/waits")
	w.contains("describe of two", w.t9k("describe", "waits", "runs"), "waits", "runs", "2 replicas run.")
	w.contains("completion of names", w.t9k("__complete", "logs", ""), "runs\tRunning\n", "waits\tPending\n")
	w.contains("completion of roles", w.t9k("__complete", "exec", "runs", "--role", ""), "w\n")
}

// succeeds waits until a call has finished, checks that it succeeded, and returns its standard error.
func (c *called) succeeds() string {
	c.Helper()
	_, errOut := c.ends(0)
	return errOut
}

func TestCLIDeleteWaitsForTheEndOfThePods(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	w.Create(jobs.New("held", jobs.Role("w", 1, kubelet.Run)))
	w.Create(jobs.New("other", jobs.Role("w", 1, kubelet.Run)))
	w.awaitPhase("held", batch.JobRunning)
	pod := &corev1.Pod{}
	w.Must(w.Get("held-w-0", pod))
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":["test.tensorstack.dev/hold"]}}`))
	w.Must(w.Client.Patch(t.Context(), pod, patch))

	deletion := w.start("", "delete", "held")
	w.Await("the pod is being deleted", func() error {
		if err := w.Get("held-w-0", pod); err != nil || pod.DeletionTimestamp == nil {
			return fmt.Errorf("it is not: %w", err)
		}
		return nil
	})
	select {
	case code := <-deletion.code:
		t.Fatalf("delete ended with code %d while a pod existed", code)
	default:
	}
	w.Must(w.Client.Patch(t.Context(), pod, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))
	out, _ := deletion.ends(0)
	w.contains("delete", out, "genericjob/held is deleted\n")
	if err := namespace.Gone(w.Get("held-w-0", &corev1.Pod{})); err != nil {
		t.Errorf("after delete, the pod: %v", err)
	}
	w.contains("delete --wait=false", w.t9k("delete", "other", "--wait=false"), "genericjob/other is being deleted\n")
	w.contains("delete of a job that does not exist", w.fails("delete", "held"), `no job "held"`)
}

func TestCLIReportsMissingOperator(t *testing.T) {
	w := newWorld(t)
	run := w.start(manifest("name: job", 1, 0, kubelet.Run), "run", "-f", "-")
	run.awaitOutput("no operator has handled the job yet")
	w.Must(w.Client.Delete(t.Context(), &batch.GenericJob{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "job"}}))
	out, _ := run.ends(1)
	w.contains("run of a job that is deleted", out, "genericjob/job was deleted before it ended")
}

// checkCLIWithoutKinds verifies the error messages of t9k in a cluster without the CRDs, and with a kubeconfig that
// does not exist.
func (w *world) checkCLIWithoutKinds() {
	w.Helper()
	for _, args := range [][]string{{"get"}, {"describe", "job"}, {"run", "-f", "-"}} {
		_, errOut := w.start(manifest("name: job", 1, 0, kubelet.Run), append([]string{"-n", "default"}, args...)...).ends(1)
		w.contains(strings.Join(args, " ")+" in a cluster without the kinds", errOut, "not installed", "kubectl apply --server-side -k config/default")
	}
	_, errOut := w.startVia(filepath.Join(w.TempDir(), "none"), "", "get").ends(1)
	w.contains("get with a kubeconfig that is gone", errOut, "kubeconfig")
}
