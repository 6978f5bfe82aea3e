package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/apiproxy"
	"tensorstack.dev/batch/test/kit/kubelet"
)

// sweepJobs returns the UIDs and the names of a sweep's jobs, by the jobs' values of a parameter.
func (w *world) sweepJobs(sweep, parameter string) (uids map[string]types.UID, names map[string]string) {
	w.Helper()
	list := &batch.GenericJobList{}
	w.Must(w.Client.List(w.Context(), list, client.InNamespace(w.Namespace), client.MatchingLabels{batch.LabelSweep: sweep}))
	uids, names = map[string]types.UID{}, map[string]string{}
	for i := range list.Items {
		j := &list.Items[i]
		_, value, _ := strings.Cut(j.Annotations[batch.AnnotationParameters], `"`+parameter+`":"`)
		value, _, _ = strings.Cut(value, `"`)
		if uids[value] != "" {
			w.Errorf("two jobs have %s=%s", parameter, value)
		}
		uids[value], names[value] = j.UID, j.Name
	}
	return uids, names
}

// TestCLISweepContinues verifies that a sweep runs at most the allowed number of jobs at a time, and that the same
// command continues it after an interruption, after a lost answer and with more values, without creating a job twice.
func TestCLISweepContinues(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	file := filepath.Join(t.TempDir(), "job.yaml")
	w.Must(os.WriteFile(file, []byte(manifest("name: sw", 1, 0, kubelet.Run, "${seed}")), 0o600))
	sweep := func(values string) []string {
		return []string{"sweep", "-f", file, "--set", "seed=" + values, "--parallel", "2"}
	}
	run := w.start("", sweep("1-3")...)
	run.awaitOutput("created: seed=2")
	run.interrupt()
	out, _ := run.ends(130)
	w.contains("an interrupted sweep", out, "2 jobs continue, and 1 were not created. The same command continues the sweep.")
	first, names := w.sweepJobs("sw", "seed")
	if len(first) != 2 {
		t.Fatalf("there are jobs %v", names)
	}
	main := w.job(names["2"]).Spec.ReplicaSpecs[0].Template.Spec.Containers[0]
	if main.Command[1] != "2" || len(main.Env) != 1 || main.Env[0].Name != "seed" || main.Env[0].Value != "2" {
		t.Errorf("the job of seed 2 runs %v with %v", main.Command, main.Env)
	}

	// The answer to the next creation of a job is lost.
	p := apiproxy.Start(t, w.Env.Config)
	lost := 0
	p.Decide(func(r *http.Request) apiproxy.Fate {
		if r.Method != http.MethodPost || r.URL.Query().Get("dryRun") != "" || !strings.HasSuffix(r.URL.Path, "/genericjobs") || lost > 0 {
			return apiproxy.Fate{}
		}
		lost++
		return apiproxy.Fate{Unanswered: true}
	})
	run = w.startVia(p.Kubeconfig, "", sweep("1-4")...)
	run.awaitOutput("4 jobs, of which 2 exist, at most 2 at a time")
	w.awaitPhase(names["1"], batch.JobRunning)
	w.finish(names["1"]+"-worker-0", 0)
	w.Await("the third job exists", func() error {
		if _, names = w.sweepJobs("sw", "seed"); names["3"] == "" {
			return fmt.Errorf("there are %v", names)
		}
		return nil
	})
	if names["4"] != "" {
		t.Error("the fourth job was created while two others run")
	}
	for _, seed := range []string{"2", "3", "4"} {
		w.Await("the job of seed "+seed+" exists", func() error {
			if _, names = w.sweepJobs("sw", "seed"); names[seed] == "" {
				return fmt.Errorf("there are %v", names)
			}
			return nil
		})
		w.awaitPhase(names[seed], batch.JobRunning)
		w.finish(names[seed]+"-worker-0", 0)
	}
	out, _ = run.ends(0)
	w.contains("the sweep", out, "cannot be created yet; trying again", "Sweep sw: 4 Succeeded\n")
	last, _ := w.sweepJobs("sw", "seed")
	if len(last) != 4 || last["1"] != first["1"] || last["2"] != first["2"] {
		t.Errorf("the jobs are %v; they were %v", last, first)
	}
	w.contains("the sweep again", w.t9k(sweep("1-4")...), "4 jobs, of which 4 exist", "Sweep sw: 4 Succeeded\n")
	w.contains("sweep NAME", w.t9k("sweep", "sw"), "seed   JOB ", names["4"], "Sweep sw: 4 Succeeded\n")

	// A copy of a job does not belong to the sweep.
	w.t9k("rerun", "-d", names["1"])
	w.contains("the sweep beside a copy", w.t9k(sweep("1-4")...), "4 jobs, of which 4 exist", "Sweep sw: 4 Succeeded\n")
}

// TestCLISweepStopsAtFailures verifies that a sweep creates no more jobs once one has failed, unless --keep-going is
// set, and that a sweep that is refused creates nothing.
func TestCLISweepStopsAtFailures(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	_, errOut := w.start("", "sweep").ends(0)
	w.contains("sweep without sweeps", errOut, "No sweeps in namespace")
	w.contains("a sweep that does not exist", w.fails("sweep", "sw"), `there is no sweep "sw"`)

	text := manifest("name: sw", 1, 0, kubelet.Exit, "${code}")
	args := []string{"sweep", "-f", "-", "--set", "code=3,0", "--parallel", "1"}
	out, _ := w.start(text, args...).ends(1)
	w.contains("a sweep with a failure", out, "No more jobs were created, because one has failed.", "Sweep sw: 1 Failed, 1 not started\n")
	if _, names := w.sweepJobs("sw", "code"); len(names) != 1 {
		t.Fatalf("there are jobs %v", names)
	}
	_, errOut = w.start(text, "sweep", "-f", "-", "--set", "code=3,0", "-d").ends(1)
	w.contains("sweep -d after a failure", errOut, "sweep sw lacks 1 job", "(code=0)", "--keep-going creates the rest")
	out, _ = w.start(text, append(args, "--keep-going")...).ends(1)
	w.contains("the sweep with --keep-going", out, "Sweep sw: 1 Failed, 1 Succeeded\n")
	w.contains("sweep", w.t9k("sweep"), "sw      2      0            1        1")
	table := w.t9k("sweep", "sw")
	_, names := w.sweepJobs("sw", "code")
	for _, line := range strings.Split(table, "\n") {
		fields := strings.Fields(line)
		if len(fields) > 6 && fields[1] == names["3"] && (fields[0] != "3" || fields[2] != "Failed" || fields[6] != "3") {
			t.Errorf("the failed job is shown as %q", line)
		}
	}
	w.contains("the table", table, names["3"], names["0"])

	// A failed job that was deleted runs again.
	w.t9k("delete", names["3"])
	out, _ = w.start(text, args...).ends(1)
	w.contains("the sweep after a deletion", out, "2 jobs, of which 1 exist", "created: code=3")

	_, errOut = w.start(strings.Replace(text, "image: none", "image: other", 1), args...).ends(1)
	w.contains("a sweep with another manifest", errOut, "already exists with a different manifest")
	_, errOut = w.start(strings.Replace(text, "replicas: 1", "replicas: 0", 1), "sweep", "-f", "-", "--set", "code=0", "--name", "bad").ends(1)
	w.contains("a sweep of invalid jobs", errOut, "with code=0: ", "Nothing was created")
	w.allow("reader", "get", "list", "watch")
	_, errOut = w.start(text, "sweep", "--as=reader", "-f", "-", "--set", "code=0", "--name", "mine").ends(1)
	w.contains("a sweep without rights", errOut, "forbidden", "Nothing was created")

	w.t9k("delete", "-l", batch.LabelSweep+"=sw")
	if _, names := w.sweepJobs("sw", "code"); len(names) > 0 {
		t.Errorf("after the deletion there are %v", names)
	}
	out, _ = w.start(text, "sweep", "-f", "-", "--set", "code=0,1", "-d", "-o", "name").ends(0)
	if n := strings.Count(out, "genericjob/sw-"); n != 2 {
		t.Errorf("sweep -d created %q", out)
	}
}
