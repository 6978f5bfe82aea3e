package docs_test

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/kinds/kindtest"
)

// TestTablesOfExitCodes verifies each entry of the table of exit codes and restart policies in the guide to each kind
// of training job, and that all tables have the same exit codes. The guide to a kind has the name of its framework.
func TestTablesOfExitCodes(t *testing.T) {
	for _, k := range kinds.All {
		if k.Training == nil {
			continue
		}
		guide := strings.ToLower(strings.TrimSuffix(k.Name, "TrainingJob")) + ".md"
		t.Run(k.Name, func(t *testing.T) {
			manifest := kindtest.Minimal(t, os.DirFS("../internal/kinds"), k)
			var tried []int32
			for _, row := range tableOfCodes(t, guide) {
				for _, code := range row.codes {
					tried = append(tried, code)
					for policy, want := range row.outcomes {
						job := withPolicy(t, manifest, policy)
						if got := outcome(job, code); got != want {
							t.Errorf("exit code %d under %s: got %s, the guide has %s", code, policy, got, want)
						}
					}
				}
			}
			slices.Sort(tried)
			if !slices.Equal(tried, []int32{0, 1, 130, 137, 138, 139, 143, 255}) {
				t.Errorf("the guide has the exit codes %v", tried)
			}
		})
	}
}

// withPolicy converts a training job after it has set the restart policy of the first role.
func withPolicy(t *testing.T, manifest *unstructured.Unstructured, policy batch.TrainingRestartPolicy) *engine.Job {
	t.Helper()
	roles := manifest.Object["spec"].(map[string]any)["replicaSpecs"].([]any)
	roles[0].(map[string]any)["restartPolicy"] = string(policy)
	data, err := manifest.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return kindtest.Job(t, data)
}

type rowOfCodes struct {
	codes    []int32
	outcomes map[batch.TrainingRestartPolicy]string
}

var (
	number = regexp.MustCompile(`\d+`)
	word   = regexp.MustCompile(`\w+`)
	remark = regexp.MustCompile(`\(.*\)`)
)

// tableOfCodes returns the rows of the table of exit codes in a guide.
func tableOfCodes(t *testing.T, guide string) []rowOfCodes {
	t.Helper()
	data, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(data), "\n| exit code |")
	if !found {
		t.Fatal("the guide has no table of exit codes")
	}
	lines := strings.Split(rest, "\n")
	var policies []batch.TrainingRestartPolicy
	for _, cell := range strings.Split(strings.TrimSuffix(lines[0], "|"), "|") {
		policies = append(policies, batch.TrainingRestartPolicy(word.FindString(cell)))
	}
	if len(policies) != 4 {
		t.Fatalf("the guide has the policies %v", policies)
	}
	var rows []rowOfCodes
	for _, line := range lines[2:] {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		row := rowOfCodes{outcomes: map[batch.TrainingRestartPolicy]string{}}
		for _, s := range number.FindAllString(remark.ReplaceAllString(cells[0], ""), -1) {
			n, err := strconv.ParseInt(s, 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			row.codes = append(row.codes, int32(n))
		}
		for i, policy := range policies {
			row.outcomes[policy] = strings.TrimSpace(cells[i+1])
		}
		rows = append(rows, row)
	}
	return rows
}

// outcome returns what the engine does with a job whose only replica ends with the exit code, in the words of the
// table: restart, succeeded or failed.
func outcome(job *engine.Job, code int32) string {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	start := engine.Next(job, engine.Seen{Now: now, Status: &batch.JobStatus{}}, engine.Config{})
	seen := engine.Seen{Now: now.Add(time.Minute), Status: start.Status, Service: true}
	for _, n := range start.Pods {
		pod := job.Pod(n)
		pod.UID, pod.CreationTimestamp = "1", metav1.NewTime(now)
		pod.Status.Phase = corev1.PodFailed
		if code == 0 {
			pod.Status.Phase = corev1.PodSucceeded
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: pod.Spec.Containers[0].Name,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: code, StartedAt: metav1.NewTime(now), FinishedAt: metav1.NewTime(seen.Now),
			}},
		}}
		seen.Pods = append(seen.Pods, pod)
	}
	next := engine.Next(job, seen, engine.Config{})
	switch {
	case next.Status == nil:
		return "nothing"
	case next.Status.Phase == batch.JobSucceeded:
		return "succeeded"
	case next.Status.Phase == batch.JobFailed:
		return "failed"
	case next.Status.BackoffCount == 1:
		return "restart"
	}
	return string(next.Status.Phase)
}
