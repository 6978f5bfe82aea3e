package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/require"
	"tensorstack.dev/batch/internal/testing/testenv"
	"tensorstack.dev/batch/test/kit/gate"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/namespace"
	"tensorstack.dev/batch/test/kit/plane"
)

// script returns the manifest of a job whose pods run a shell script. In the script, RANK is the rank of the replica,
// and ATTEMPT is the number of its attempt, starting at 0.
func script(name string, replicas, restarts int, text string) string {
	return fmt.Sprintf(`
apiVersion: batch.tensorstack.dev/v1beta1
kind: GenericJob
metadata: {name: %s}
spec:
  cleanUpPolicy: Unfinished
  replicaSpecs:
    - type: worker
      replicas: %d
      restartPolicy: {policy: OnFailure, limit: %d}
      template:
        spec:
          terminationGracePeriodSeconds: 1
          containers:
            - name: main
              image: none
              command: [sh, -c, %q]
              env:
                - {name: RANK, value: $(rank)}
                - {name: ATTEMPT, valueFrom: {fieldRef: {fieldPath: "metadata.labels['batch.tensorstack.dev/replica-attempt']"}}}
`, name, replicas, restarts, text)
}

// TestCLIWorksWithRunningPods verifies the verbs that need running pods.
func TestCLIWorksWithRunningPods(t *testing.T) {
	t.Parallel()
	if err := local.CheckPodSupport(); err != nil {
		require.Missing(t, err.Error())
	}
	p := plane.Start(t, testenv.Options{Components: local.AllComponents(), Settings: map[string][]string{local.Operator: {"jobs: {restartBackoff: 100ms}"}}})
	for name, test := range map[string]func(*world){
		"the last lines of failed replicas":    testLastLines,
		"the last lines of a pod that is gone": testArchivedLines,
		"a failed init container":              testInitLines,
		"run shows output":                     testRunOutput,
		"run shows output on a terminal":       testRunOutputOnTerminal,
		"logs":                                 testLogs,
		"logs -f across restarts":              testLogsFollow,
		"logs -f through an outage":            testLogsOutage,
		"exec":                                 testExec,
		"training jobs":                        testTrainingPods,
	} {
		t.Run(name, func(t *testing.T) {
			test(&world{&namespace.Test{T: t, Plane: p, Namespace: metav1.NamespaceDefault}})
		})
	}
}

func testLastLines(w *world) {
	run := w.start(script("fails", 5, 0, "for i in $(seq 20); do echo rank $RANK line $i; done; exit $((4 + RANK))"), "run", "-f", "-")
	out, errOut := run.ends(1)
	w.contains("run", errOut, "containers as processes of this machine: their images are ignored.")
	w.contains("run", out, "genericjob/fails Failed in ", "exit code ")
	told := 0
	for rank := range 5 {
		head := fmt.Sprintf("\nworker-%d failed: exit code %d\n", rank, 4+rank)
		if !strings.Contains(out, head) {
			continue
		}
		told++
		_, tail, _ := strings.Cut(out, head)
		for i := 11; i <= 20; i++ {
			line := fmt.Sprintf("  | rank %d line %d\n", rank, i)
			if !strings.HasPrefix(tail, line) {
				w.Fatalf("behind %q there is not %q:\n%s", head, line, tail)
			}
			tail = tail[len(line):]
		}
	}
	if told == 0 {
		w.Errorf("the output lacks the last lines of the failed replica:\n%s", out)
	}
}

// testArchivedLines verifies that `t9k run` shows the last lines of a failed replica from the archive if the replica's
// pod was deleted before the job ends.
func testArchivedLines(w *world) {
	g := gate.New(w.T)
	w.Must(g.AddPipe("1"))
	text := script("lost", 2, 0, fmt.Sprintf("for i in $(seq 20); do echo rank $RANK line $i; done; [ $RANK = 0 ] || read code < %s/1; exit 3", gate.MountPath)) +
		fmt.Sprintf("              volumeMounts: [{name: gate, mountPath: %s}]\n          volumes: [{name: gate, hostPath: {path: %s}}]\n", gate.MountPath, g.Dir())
	text = strings.Replace(text, "spec:", "spec:\n  successRules: [{worker: [1]}]\n  failureRules: [{worker: []}]", 1)
	run := w.start(text, "run", "-f", "-")
	w.Await("the archive has the log of the failed replica", func() error {
		call := w.start("", "history", "logs", "lost")
		if <-call.code != 0 || !strings.Contains(call.out.String(), "rank 0 line 20") {
			return errors.New(call.out.String() + call.err.String())
		}
		return nil
	})
	// If the pod is deleted before the operator sees that it failed, the pod does not count as failed and is
	// replaced.
	w.Await("the status has the failed replica", func() error {
		j := &batch.GenericJob{}
		if err := w.Get("lost", j); err != nil {
			return err
		}
		if !jobs.IsTrue(j, batch.JobReplicaFailure) {
			return errors.New("it has not")
		}
		return nil
	})
	w.Must(w.Client.Delete(w.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "lost-worker-0"}}))
	w.awaitGone("lost-worker-0", &corev1.Pod{})
	w.Await("the other replica takes an order", func() error { return g.Order("1", 3) })
	out, _ := run.ends(1)
	w.contains("run", out, "worker-0 failed: exit code 3\n  its pod is gone; from the archive:\n  | rank 0 line 11\n", "  | rank 0 line 20\n", "  | rank 1 line 20\n")
}

// testInitLines verifies that the output of a failed init container is shown as the output of its replica.
func testInitLines(w *world) {
	text := strings.Replace(script("setup", 1, 0, "exit 0"), "          containers:", `          initContainers:
            - name: fetch
              image: none
              command: [sh, -c, "echo no data; exit 4"]
          containers:`, 1)
	run := w.start(text, "run", "-f", "-")
	out, errOut := run.ends(1)
	w.contains("run", out, "worker-0 failed: exit code 4, init container fetch\n  | no data\n")
	w.contains("run", out+errOut, "attempt 1: its init container fetch ended with exit code 4")
	call := w.start("", "logs", "setup")
	out, errOut = call.ends(0)
	w.contains("logs", out+errOut, "its init container fetch failed", "no data")
	w.Await("the archive has the log", func() error {
		call := w.start("", "history", "logs", "setup")
		if <-call.code != 0 || !strings.Contains(call.out.String(), "no data") {
			return errors.New(call.out.String() + call.err.String())
		}
		return nil
	})
	call = w.start("", "history", "describe", "setup")
	out, _ = call.ends(0)
	w.contains("history", out, "Failed, exit code 4, init container fetch")
}

// gated returns the manifest of a job with one replica, and the gate that it uses. Each attempt prints a line, waits
// for an order to the pipe with the attempt's number, and prints another line. Only the last attempt succeeds.
func gated(w *world, name string, attempts int) (string, *gate.Gate) {
	g := gate.New(w.T)
	for attempt := range attempts {
		w.Must(g.AddPipe(fmt.Sprint(attempt)))
	}
	text := script(name, 1, attempts-1, fmt.Sprintf("echo begin $ATTEMPT; read go < %s/$ATTEMPT; echo end $ATTEMPT; [ $ATTEMPT = %d ] || exit $((5 + ATTEMPT))", gate.MountPath, attempts-1))
	return text + fmt.Sprintf("              volumeMounts: [{name: gate, mountPath: %s}]\n          volumes: [{name: gate, hostPath: {path: %s}}]\n", gate.MountPath, g.Dir()), g
}

// testRunOutput verifies which output of replicas `t9k run` shows between the job's transitions.
func testRunOutput(w *world) {
	text, g := gated(w, "retries", 2)
	run := w.start(text, "run", "-f", "-")
	for attempt := range 2 {
		run.awaitOutput(fmt.Sprintf("worker-0 | begin %d\n", attempt))
		w.Await("the attempt takes an order", func() error { return g.Order(fmt.Sprint(attempt), 0) })
	}
	out, _ := run.ends(0)
	rest := out
	for _, line := range []string{"begin 0", "end 0", "--- attempt 1 ended with exit code 5 ---", "begin 1", "end 1"} {
		_, after, found := strings.Cut(rest, "worker-0 | "+line+"\n")
		if !found {
			w.Fatalf("run does not print %q in its place:\n%s", line, out)
		}
		rest = after
	}
	w.contains("run", out, "worker-0 | --- attempt 2 ---\n")

	const talk = "printf 'rank %s \\033[2J\\n' $RANK"
	out, _ = w.start(script("first", 3, 0, talk), "run", "-").ends(0)
	w.contains("run", out, "worker-0 | rank 0 \\u001b[2J\n")
	if strings.Contains(out, "worker-1 |") {
		w.Errorf("run shows the output of the second replica:\n%s", out)
	}
	out, _ = w.start(script("all", 2, 0, talk)+"---"+script("other", 1, 0, talk), "run", "--logs=all", "-").ends(0)
	w.contains("run --logs=all of two jobs", out, "genericjob/all worker-0   | rank 0", "genericjob/all worker-1   | rank 1", "genericjob/other worker-0 | rank 0")
	out, _ = w.start(script("silent", 1, 0, talk+"; exit 4"), "run", "--logs=none", "-").ends(1)
	w.contains("run --logs=none", out, "worker-0 failed: exit code 4")
	if strings.Contains(out, "rank 0") {
		w.Errorf("run --logs=none shows output:\n%s", out)
	}
}

// testRunOutputOnTerminal verifies that `t9k run` on a terminal shows output together with its live status.
func testRunOutputOnTerminal(w *world) {
	text, g := gated(w, "pictured", 1)
	file := filepath.Join(w.TempDir(), "job.yaml")
	w.Must(os.WriteFile(file, []byte(text), 0o600))
	term := newTerminal(w.T, 70, 24)
	run := w.startOn(term, "run", file)
	term.await(w, " begin 0\x1b[K")
	w.Await("the job takes an order", func() error { return g.Order("0", 0) })
	run.ends(0)
	term.await(w, " end 0\x1b[K")

	// The output continues after a pause. Ctrl-C stops the live status while output arrives, and the job continues.
	w.Must(os.WriteFile(file, []byte(script("chats", 1, 0, "while echo chat of $ATTEMPT; do sleep 0.1; done")), 0o600))
	run = w.startOn(term, "run", file)
	term.await(w, " chat of 0\x1b[K")
	w.t9k("pause", "chats")
	w.awaitPhase("chats", batch.JobPaused)
	w.t9k("resume", "chats")
	term.await(w, " chat of 1\x1b[K")
	run.interrupt()
	run.ends(130)
	term.await(w, "Stopped following; genericjob/chats continues.")
	w.t9k("delete", "chats")
}

func testLogs(w *world) {
	w.start(script("speaks", 2, 0, "echo first; echo second of $RANK; echo third"), "run", "-f", "-").ends(0)
	for _, test := range []struct{ args, want string }{
		{"", "worker-0 | first\nworker-0 | second of 0\nworker-0 | third\nworker-1 | first\nworker-1 | second of 1\nworker-1 | third\n"},
		{"--rank 1 --role worker", "worker-1 | first\nworker-1 | second of 1\nworker-1 | third\n"},
		{"--rank 0-1 --tail 1", "worker-0 | third\nworker-1 | third\n"},
		{"--tail 1 --rank 0 -c main", "worker-0 | third\n"},
		{"--since 1h --rank 0 --tail 2", "worker-0 | second of 0\nworker-0 | third\n"},
	} {
		if got := w.t9k(append([]string{"logs", "speaks"}, strings.Fields(test.args)...)...); got != test.want {
			w.Errorf("logs %s: got\n%swant\n%s", test.args, got, test.want)
		}
	}
	followed := w.t9k("logs", "-f", "speaks", "--rank", "1")
	if want := "worker-1 | first\nworker-1 | second of 1\nworker-1 | third\n"; followed != want {
		w.Errorf("logs -f of a job that has ended: got\n%swant\n%s", followed, want)
	}
	stamped := strings.Fields(w.t9k("logs", "speaks", "--rank", "0", "--tail", "1", "--timestamps"))
	if len(stamped) != 4 || !strings.HasPrefix(stamped[2], "20") || !strings.Contains(stamped[2], "T") {
		w.Errorf("logs --timestamps: %v", stamped)
	}
	w.contains("an unknown role", w.fails("logs", "speaks", "--role", "ps"), `genericjob/speaks has no role "ps"; it has: worker`)
	w.contains("an unknown container", w.fails("logs", "speaks", "-c", "side"), `role "worker" has no container "side"; it has: main`)
	w.contains("a rank too high", w.fails("logs", "speaks", "--rank", "0-2"), "rank 2 is out of range: ranks are 0 to 1")
	w.contains("no rank", w.fails("logs", "speaks", "--rank", "a"), "--rank a: write a rank such as 0")
	w.contains("exec in a pod that has ended", w.fails("exec", "speaks", "--", "true"), "pod speaks-worker-0 does not run: it is Succeeded")
}

func testLogsFollow(w *world) {
	// Each attempt continues once its first line has arrived.
	text, g := gated(w, "again", 3)
	w.start(text, "run", "-f", "-", "-d").ends(0)
	logs := w.start("", "logs", "-f", "again")
	for attempt := range 3 {
		logs.awaitOutput(fmt.Sprintf("begin %d\n", attempt))
		w.Await("the attempt takes an order", func() error { return g.Order(fmt.Sprint(attempt), 0) })
	}
	out, _ := logs.ends(0)
	want := `worker-0 | begin 0
worker-0 | end 0
worker-0 | --- attempt 1 ended with exit code 5 ---
worker-0 | --- attempt 2 ---
worker-0 | begin 1
worker-0 | end 1
worker-0 | --- attempt 2 ended with exit code 6 ---
worker-0 | --- attempt 3 ---
worker-0 | begin 2
worker-0 | end 2
`
	if out != want {
		w.Errorf("logs -f: got\n%swant\n%s", out, want)
	}
	lines := strings.Split(w.t9k("logs", "again"), "\n")
	if len(lines) != 5 || lines[2] != "worker-0 | begin 2" || lines[3] != "worker-0 | end 2" {
		w.Fatalf("logs after restarts: %q", lines)
	}
	w.contains("the first earlier attempt", lines[0], "earlier attempt, its output is gone: ", "ended with exit code 5 (restart 1 of 2)")
	w.contains("the second", lines[1], "earlier attempt, its output is gone: ", "ended with exit code 6 (restart 2 of 2)")
}

func testLogsOutage(w *world) {
	const lines = 60
	w.start(script("counts", 2, 0, fmt.Sprintf("for i in $(seq %d); do echo line $i; sleep 0.1; done", lines)), "run", "-f", "-", "-d").ends(0)
	logs := w.start("", "logs", "-f", "counts")
	logs.awaitOutput("worker-1 | line 5\n")
	w.Must(w.Env.Kill(local.APIServer))
	w.Must(w.Env.AwaitReady(w.Context()))
	out, _ := logs.ends(0)
	for _, worker := range []string{"worker-0 | ", "worker-1 | "} {
		var got, want []string
		for l := range strings.Lines(out) {
			if text, ok := strings.CutPrefix(l, worker); ok {
				got = append(got, strings.TrimSpace(text))
			}
		}
		for i := 1; i <= lines; i++ {
			want = append(want, fmt.Sprintf("line %d", i))
		}
		if strings.Join(got, ",") != strings.Join(want, ",") {
			w.Errorf("%s: got %v", worker, got)
		}
	}
}

// besides is the manifest of a PyTorchTrainingJob whose main containers are not the first containers of their pods.
const besides = `
apiVersion: batch.tensorstack.dev/v1beta1
kind: PyTorchTrainingJob
metadata: {name: trains}
spec:
  replicaSpecs:
    - type: master
      template: &pod
        spec:
          terminationGracePeriodSeconds: 1
          containers:
            - {name: side, image: none, command: [sleep, "1000"]}
            - {name: pytorch, image: none, command: [sh, -c, "echo rank $RANK of $WORLD_SIZE by $MASTER_ADDR; sleep 1000"]}
    - {type: worker, template: *pod}
`

func testTrainingPods(w *world) {
	w.start(besides, "run", "-f", "-", "-d").ends(0)
	w.awaitPyTorch("trains", batch.JobRunning, 2)
	want := "master-0 | rank 0 of 2 by trains-master-0\nworker-0 | rank 1 of 2 by trains-master-0\n"
	w.Await("logs shows what the main containers wrote", func() error {
		if got := w.t9k("logs", "ptj/trains"); got != want {
			return fmt.Errorf("it shows %q", got)
		}
		return nil
	})
	if got := w.t9k("exec", "trains", "--role", "worker", "--", "sh", "-c", "hostname; echo $RANK"); got != "trains-worker-0\n1\n" {
		w.Errorf("exec in the worker: %q", got)
	}
	w.contains("exec in the other container", w.t9k("exec", "trains", "-c", "side", "--", "hostname"), "trains-master-0\n")
	w.contains("debug", w.t9k("debug", "on", "trains"), "pytorchtrainingjob/trains is going into debug mode\n")
	w.Await("the pods idle", func() error {
		j := w.pytorch("trains")
		if j.Status.RunMode != batch.RunDebug {
			return fmt.Errorf("the run mode is %s", j.Status.RunMode)
		}
		return inPhase(&j.Status.JobStatus, batch.JobRunning, 2)
	})
	w.contains("delete", w.t9k("delete", "trains"), "pytorchtrainingjob/trains is deleted\n")
}

func testExec(w *world) {
	w.start(script("idles", 2, 0, "sleep 1000"), "run", "-f", "-", "-d").ends(0)
	w.awaitPhase("idles", batch.JobRunning)
	out, errOut := w.start("", "exec", "idles", "--rank", "1", "--", "sh", "-c", "hostname; echo oops >&2; exit 9").ends(9)
	if out != "idles-worker-1\n" || errOut != "oops\n" {
		w.Errorf("exec wrote %q and %q", out, errOut)
	}
	if out, _ = w.start("some input", "exec", "-i", "idles", "--role", "worker", "--", "cat").ends(0); out != "some input" {
		w.Errorf("exec -i wrote %q", out)
	}
	w.contains("a rank too high", w.fails("exec", "idles", "--rank", "2", "--", "true"), `rank 2 is out of range: role "worker" has ranks 0 to 1`)

	terminal := newTerminal(w.T, 70, 30)
	shell := w.startOn(terminal, "exec", "idles", "--", "sh")
	terminal.write("stty size; echo $((40 + 2)); exit 7\n")
	shell.ends(7)
	w.Await("the terminal shows what exec printed", func() error {
		if text := terminal.output.String(); !strings.Contains(text, "30 70") || !strings.Contains(text, "42") {
			return fmt.Errorf("it shows %q", text)
		}
		return nil
	})
	w.t9k("delete", "idles")
}
