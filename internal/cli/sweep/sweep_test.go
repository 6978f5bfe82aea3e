package sweep

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/kinds/kindtest"
	"tensorstack.dev/batch/internal/observed"
)

func TestParametersCombine(t *testing.T) {
	parameters, err := parseParameters([]string{"lr=0.1,1e-3", "seed=1-3", "day=2026-01-02,a b=c"})
	if err != nil {
		t.Fatal(err)
	}
	all := combine(parameters)
	if len(all) != 12 {
		t.Fatalf("there are %d combinations", len(all))
	}
	got := []string{all[0].String(), all[1].String(), all[2].String(), all[11].String()}
	want := []string{"lr=0.1 seed=1 day=2026-01-02", "lr=0.1 seed=1 day=a b=c", "lr=0.1 seed=2 day=2026-01-02", "lr=1e-3 seed=3 day=a b=c"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	names := map[string]bool{}
	for _, s := range all {
		names[jobName("mnist", s)] = true
		back := slices.Clone(s)
		slices.Reverse(back)
		if jobName("mnist", back) != jobName("mnist", s) {
			t.Errorf("the name of %s depends on the order of the parameters", s)
		}
	}
	if len(names) != len(all) {
		t.Errorf("%d jobs have %d names", len(all), len(names))
	}
}

// TestDriverLimitsJobs verifies which job the driver creates next, depending on the states of the existing jobs.
func TestDriverLimitsJobs(t *testing.T) {
	const running, good, bad = "Running", "Succeeded", "Failed"
	for name, test := range map[string]struct {
		parallel  int
		keepGoing bool
		phases    []string
		// due is the index of the next job to create; -1 for none.
		due  int
		over bool
	}{
		"all at once":                          {0, false, []string{running, running, ""}, 2, false},
		"up to the limit":                      {2, false, []string{running, good, ""}, 2, false},
		"not above the limit":                  {2, false, []string{running, running, ""}, -1, false},
		"those that are missing":               {2, false, []string{"", running, ""}, 0, false},
		"none after a failure":                 {2, false, []string{bad, running, ""}, -1, false},
		"over after a failure":                 {2, false, []string{bad, good, ""}, -1, true},
		"more after a failure with keep-going": {2, true, []string{bad, running, ""}, 2, false},
		"none after a deletion":                {1, false, []string{"Deleted", good, ""}, -1, true},
		"over":                                 {1, false, []string{good, good, good}, -1, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := driverOf(t, test.phases)
			d.options.parallel, d.options.keepGoing = test.parallel, test.keepGoing
			due := -1
			if m := d.due(); m != nil {
				due = slices.Index(d.members, m)
			}
			if due != test.due || d.over() != test.over {
				t.Errorf("job %d is due, over %t; want %d, %t", due, d.over(), test.due, test.over)
			}
		})
	}
}

func TestResultsSayWhatToDo(t *testing.T) {
	for name, test := range map[string]struct {
		phases      []string
		interrupted bool
		code        int
		want        []string
	}{
		"success":     {[]string{"Succeeded", "Succeeded"}, false, 0, []string{"Sweep s: 2 Succeeded\n"}},
		"failure":     {[]string{"Failed", "Succeeded", ""}, false, 1, []string{"No more jobs were created", "--keep-going", "1 Failed, 1 Succeeded, 1 not started"}},
		"last failed": {[]string{"Succeeded", "Failed"}, false, 1, []string{"To try failed jobs again"}},
		"interrupted": {[]string{"Running", "", ""}, true, 130, []string{"1 job continues, and 2 were not created. The same command continues the sweep."}},
		"late Ctrl-C": {[]string{"Succeeded"}, true, 0, []string{"1 Succeeded"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := driverOf(t, test.phases)
			var out bytes.Buffer
			d.Out = &out
			err := d.conclude(test.interrupted)
			code := 0
			var exit *kit.ExitError
			if errors.As(err, &exit) {
				code = exit.Code
			}
			if code != test.code {
				t.Errorf("exit code %d, want %d: %v", code, test.code, err)
			}
			for _, s := range append(test.want, "SEED") {
				if !strings.Contains(out.String(), s) {
					t.Errorf("the results lack %q:\n%s", s, &out)
				}
			}
		})
	}
}

// TestDetachNamesJobsThatAreMissing verifies that sweep --detach fails if an earlier failure keeps jobs from being
// created, and names them.
func TestDetachNamesJobsThatAreMissing(t *testing.T) {
	many := slices.Repeat([]string{""}, 12)
	for name, test := range map[string]struct {
		phases []string
		output kit.Format
		out    string
		// err holds parts of the expected error; nil if no error is expected.
		err []string
	}{
		"all exist":          {[]string{"Failed", "Running"}, "", "Sweep s has 2 jobs", nil},
		"one is missing":     {[]string{"Failed", ""}, "", "Sweep s has 1 job", []string{"lacks 1 job", "genericjob/s-1 (SEED=1)\n", "--keep-going", "delete them"}},
		"names":              {[]string{"Failed", ""}, kit.Name, "genericjob/s-0\n", []string{"genericjob/s-1 (SEED=1)\n"}},
		"JSON":               {[]string{"Failed", ""}, kit.JSON, `"name": "s-0"`, []string{"genericjob/s-1 (SEED=1)\n"}},
		"a dozen is missing": {append([]string{"Failed"}, many...), "", "has 1 job", []string{"lacks 12 jobs", "genericjob/s-10 (SEED=10) and 2 more\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := driverOf(t, test.phases)
			var out bytes.Buffer
			d.Out, d.options.output, d.options.detach = &out, test.output, true
			d.cluster = &kit.Cluster{Namespace: "ns"}
			err := d.printCreated()
			if (err != nil) != (len(test.err) > 0) {
				t.Fatalf("error %v", err)
			}
			for _, part := range test.err {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error lacks %q: %s", part, err)
				}
			}
			if !strings.Contains(out.String(), test.out) {
				t.Errorf("the output lacks %q: %s", test.out, &out)
			}
		})
	}
}

// ends holds the conditions of finished jobs, by their phases.
var ends = map[string]batch.JobConditionType{string(batch.JobSucceeded): batch.JobCompleted, string(batch.JobFailed): batch.JobFailedCondition}

// driverOf returns a driver of jobs with these phases. An empty phase means that the job has not been created, and
// "Deleted" that it was deleted.
func driverOf(t *testing.T, phases []string) *driver {
	t.Helper()
	d := &driver{Program: kit.New("t9k", genericiooptions.NewTestIOStreamsDiscard()), options: &options{}, plan: &plan{
		name: "s", kind: kindtest.Named("GenericJob"), parameters: []parameter{{"SEED", nil}},
	}}
	for i, phase := range phases {
		m := &member{settings: settings{{"SEED", fmt.Sprint(i)}}, deleted: phase == "Deleted", object: &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "batch.tensorstack.dev/v1beta1", "kind": "GenericJob", "metadata": map[string]any{"name": fmt.Sprint("s-", i), "namespace": "ns"},
		}}}
		d.members = append(d.members, m)
		if phase == "" || m.deleted {
			continue
		}
		u := m.object.DeepCopy()
		var conditions []any
		if end, ended := ends[phase]; ended {
			conditions = append(conditions, map[string]any{"type": string(end), "status": "True"})
		}
		u.Object["status"] = map[string]any{"phase": phase, "conditions": conditions}
		var err error
		if m.job, err = observed.New(d.kind, u); err != nil {
			t.Fatal(err)
		}
	}
	return d
}
