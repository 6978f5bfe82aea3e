package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/gate"
	"tensorstack.dev/batch/test/kit/jobs"
)

// TestStatusFollowsTheJob verifies the status of a job while it runs, after a replica has failed, and at its end, and
// that each event is emitted once. Package history checks the invariants of every status in all tests; test/integration
// counts the writes.
func TestStatusFollowsTheJob(t *testing.T) {
	s := newSpace(t)
	j := s.newJob("tell", role("worker", 2, gate.Obey), role("ps", 1, gate.Obey))
	j.Spec.FailureRules = []batch.FinishRule{{"worker": {}}}
	j.Spec.SuccessRules = []batch.FinishRule{{"ps": {}}}
	s.Create(j)
	j = s.awaitPhase("tell", batch.JobRunning)
	if !jobs.IsTrue(j, batch.JobInitialized) || !jobs.IsTrue(j, batch.JobRunningCondition) || j.Status.StartTime == nil || j.Status.Replicas != 3 || j.Status.ObservedGeneration != j.Generation {
		t.Errorf("running: %+v", j.Status)
	}
	s.awaitJob("tell", "three running replicas", func(j *batch.GenericJob) bool { return j.Status.Aggregate == batch.Aggregate{Running: 3} })
	s.order("tell-worker-1", 3)
	j = s.awaitJob("tell", "a failure", func(j *batch.GenericJob) bool { return j.Status.Aggregate == batch.Aggregate{Running: 2, Failed: 1} })
	if c := jobs.Condition(j, batch.JobReplicaFailure); c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, "tell-worker-1 failed with exit code 3") {
		t.Errorf("condition ReplicaFailure: %+v", c)
	}
	s.order("tell-ps-0", 0)
	j = s.awaitPhase("tell", batch.JobSucceeded)
	if j.Status.CompletionTime.Before(j.Status.StartTime) {
		t.Errorf("from %v to %v", j.Status.StartTime, j.Status.CompletionTime)
	}
	s.checkTasks(j)
	s.fence()
	// The operator emits no event JobStarted if the first status already has the phase Running.
	if n := occurrences(s.Events(), "tell", string(batch.EventJobStarted)); n > 1 {
		t.Errorf("%d events %s", n, batch.EventJobStarted)
	}
	for _, reason := range []batch.Reason{batch.ReasonReplicasRunning, batch.ReasonReplicaFailed, batch.ReasonSuccessRule, batch.EventReplicasHoldResources} {
		s.awaitEvent("tell", reason, "")
		if n := occurrences(s.Events(), "tell", string(reason)); n != 1 {
			t.Errorf("%d events %s, want 1", n, reason)
		}
	}
}

// checkTasks compares the tasks in the final status of the job of TestStatusFollowsTheJob with its pods.
func (s *space) checkTasks(j *batch.GenericJob) {
	s.Helper()
	if len(j.Status.Tasks) != 2 || j.Status.Tasks[0].Type != "worker" || j.Status.Tasks[1].Type != "ps" {
		s.Fatalf("tasks %+v", j.Status.Tasks)
	}
	code := func(n int32) *int32 { return &n }
	for name, want := range map[string]batch.ReplicaStatus{
		"tell-worker-0": {Phase: batch.ReplicaRunning, Containers: []batch.ContainerStatus{{Name: "main", State: batch.ContainerRunning}}},
		"tell-worker-1": {Phase: batch.ReplicaFailed, Containers: []batch.ContainerStatus{{Name: "main", State: batch.ContainerTerminated, ExitCode: code(3)}}},
		"tell-ps-0":     {Phase: batch.ReplicaSucceeded, Containers: []batch.ContainerStatus{{Name: "main", State: batch.ContainerTerminated, ExitCode: code(0)}}},
	} {
		p := s.podNow(name)
		want.Name, want.UID, want.NodeName = name, string(p.UID), p.Spec.NodeName
		if got := jobs.Replica(j, name); asJSON(got) != asJSON(want) {
			s.Errorf("replica %s, want %s", asJSON(got), asJSON(want))
		}
	}
}

func asJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// TestKubectlShowsJobColumns verifies the columns that `kubectl get` prints for a job.
func TestKubectlShowsJobColumns(t *testing.T) {
	s := newSpace(t)
	s.Create(s.newJob("shown", jobs.Restarting(role("worker", 2, gate.Obey), batch.RestartOnFailure, 1)))
	s.orders("shown-worker-0", 1)
	s.awaitStarts("shown-worker-0", 2)
	s.awaitJob("shown", "both replicas run", func(j *batch.GenericJob) bool { return j.Status.Aggregate.Running == 2 })
	table := s.table("shown")
	cells := map[string]string{}
	for i, c := range table.ColumnDefinitions {
		if c.Priority == 0 {
			cells[c.Name] = fmt.Sprint(table.Rows[0].Cells[i])
		}
	}
	age := cells["Age"]
	delete(cells, "Age")
	want := map[string]string{"Name": "shown", "Phase": "Running", "Ready": "2", "Total": "2", "Restarts": "1"}
	if asJSON(cells) != asJSON(want) || !strings.HasSuffix(age, "s") {
		t.Errorf("columns %v with age %q, want %v", cells, age, want)
	}
	wide := map[string]bool{}
	for _, c := range table.ColumnDefinitions {
		wide[c.Name] = c.Priority > 0
	}
	if !wide["Queue"] || !wide["Started"] {
		t.Errorf("wide columns: %v", wide)
	}
}

// table returns the API server's table representation of a job.
func (s *space) table(name string) *metav1.Table {
	s.Helper()
	data, err := s.Core.Discovery().RESTClient().Get().AbsPath("/apis/batch.tensorstack.dev/v1beta1/namespaces/"+s.Namespace+"/genericjobs/"+name).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	table := &metav1.Table{}
	if err := json.Unmarshal(data, table); err != nil || len(table.Rows) != 1 {
		s.Fatalf("%v: %s", err, data)
	}
	return table
}

// TestPendingJobReportsTheSchedulersReason verifies that a pending job reports the message of the scheduler.
func TestPendingJobReportsTheSchedulersReason(t *testing.T) {
	s := newSpace(t)
	worker := role("worker", 1, gate.Obey)
	worker.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10000")}
	s.Create(s.newJob("huge", worker))
	j := s.awaitJob("huge", "the scheduler's reason", func(j *batch.GenericJob) bool {
		return jobs.Condition(j, batch.JobRunningCondition).Reason == batch.ReasonUnschedulable
	})
	if c := jobs.Condition(j, batch.JobRunningCondition); j.Status.Phase != batch.JobPending || !strings.Contains(c.Message, "huge-worker-0") || !strings.Contains(c.Message, "Insufficient cpu") {
		t.Errorf("phase %s, condition Running: %+v", j.Status.Phase, c)
	}
}
