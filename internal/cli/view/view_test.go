package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/observed"
	"tensorstack.dev/batch/internal/testing/golden"
)

// now is the fixed clock of these tests. Their jobs started a minute earlier.
var now = time.Date(2026, 5, 4, 12, 1, 0, 0, time.UTC)

var start = metav1.NewTime(now.Add(-time.Minute))

// st returns the status of a job mnist with phases by role, as the controller would write it.
func st(phase batch.JobPhase, tasks ...batch.Tasks) *batch.JobStatus {
	s := &batch.JobStatus{Phase: phase, Tasks: tasks, StartTime: &start, RunMode: batch.RunImmediate}
	for i := range tasks {
		counts, _ := observed.CountPhases(&tasks[i])
		s.Aggregate.Creating += int32(counts[batch.ReplicaCreating])
		s.Aggregate.Pending += int32(counts[batch.ReplicaPending])
		s.Aggregate.Running += int32(counts[batch.ReplicaRunning])
		s.Aggregate.Succeeded += int32(counts[batch.ReplicaSucceeded])
		s.Aggregate.Failed += int32(counts[batch.ReplicaFailed])
		s.BackoffCount += tasks[i].RestartCount
		s.Restarts = s.BackoffCount
	}
	return s
}

// task returns the status of a role. edit changes the replica of each rank.
func task(role string, n int, phase batch.ReplicaPhase, edit func(rank int, r *batch.ReplicaStatus)) batch.Tasks {
	t := batch.Tasks{Type: role}
	for rank := range n {
		r := batch.ReplicaStatus{
			Name: engine.ReplicaName("mnist", role, rank), UID: fmt.Sprintf("%s-%d", role, rank), Phase: phase, NodeName: "node-1",
		}
		if edit != nil {
			edit(rank, &r)
		}
		t.RestartCount += r.RestartCount
		t.Replicas = append(t.Replicas, r)
	}
	return t
}

func with(s *batch.JobStatus, t batch.JobConditionType, status metav1.ConditionStatus, reason batch.Reason, message string) *batch.JobStatus {
	s.Conditions = append(s.Conditions, batch.JobCondition{Type: t, Status: status, Reason: reason, Message: message, LastTransitionTime: start})
	return s
}

func exited(r *batch.ReplicaStatus, code int32) {
	r.Containers = []batch.ContainerStatus{{Name: "main", State: batch.ContainerTerminated, ExitCode: &code}}
}

func live(s *batch.JobStatus) Live {
	ages := Ages{}
	for _, r := range listed(s) {
		ages[r.UID] = now.Add(-time.Duration(30+r.rank) * time.Second)
	}
	return Live{Job: Job{Kind: "GenericJob", Ref: "genericjob/mnist", Namespace: "team", Name: "mnist", Created: start.Time, Status: s}, Ages: ages}
}

// thirty returns 12 pending jobs, 9 running jobs, 8 succeeded jobs and one failed job, in mixed order.
func thirty(pending, running *batch.JobStatus) []Live {
	good := with(st(batch.JobSucceeded, task("worker", 2, batch.ReplicaSucceeded, nil)), batch.JobCompleted, metav1.ConditionTrue, batch.ReasonSuccessRule, "Every replica has succeeded.")
	bad := with(st(batch.JobFailed, task("worker", 2, batch.ReplicaFailed, nil)), batch.JobFailedCondition, metav1.ConditionTrue, batch.ReasonReplicaFailed,
		"Replica mnist-worker-0 has failed with exit code 3, and without failure rules one failed replica fails the job.")
	var jobs []Live
	for i := range 30 {
		s := []*batch.JobStatus{pending, good, running, pending, running, good}[i%6]
		switch i {
		case 28:
			s = pending
		case 29:
			s = pending
		case 17:
			s = bad
		}
		j := live(s)
		j.Name = fmt.Sprintf("mnist-%d", i)
		j.Ref = "genericjob/" + j.Name
		jobs = append(jobs, j)
	}
	return jobs
}

func running(s *batch.JobStatus) *batch.JobStatus {
	return with(s, batch.JobRunningCondition, metav1.ConditionTrue, batch.ReasonReplicasRunning, "305 replicas run, 1 has failed. 2 more are awaited.")
}

func TestFramesFitTheTerminal(t *testing.T) {
	two := func(rank int, r *batch.ReplicaStatus) {
		if rank == 1 {
			r.Phase, r.RestartCount, r.Attempt = batch.ReplicaFailed, 2, 2
			exited(r, 3)
		}
	}
	pending := with(st(batch.JobPending, task("worker", 2, batch.ReplicaCreating, func(_ int, r *batch.ReplicaStatus) {
		r.NodeName, r.Reason = "", "Unschedulable"
	})), batch.JobRunningCondition, metav1.ConditionFalse, batch.ReasonUnschedulable,
		"0 of 2 replicas run. Pod mnist-worker-0: 0/3 nodes are available:\n3 Insufficient nvidia.com/gpu.")
	large := running(st(batch.JobRunning, task("worker", 300, batch.ReplicaRunning, two), task("ps", 8, batch.ReplicaRunning, func(rank int, r *batch.ReplicaStatus) {
		if rank > 5 {
			r.Phase, r.Reason = batch.ReplicaPending, "ImagePullBackOff"
		}
	})))
	cut := running(st(batch.JobRunning, task("worker", 2, batch.ReplicaRunning, two)))
	cut.Tasks[0].Omitted = []batch.OmittedReplicas{{Ranks: "2-1999", Phase: batch.ReplicaRunning}, {Ranks: "2000,2002", Phase: batch.ReplicaSucceeded}}
	cut.Tasks[0].OmittedReplicas, cut.Aggregate.Running, cut.Aggregate.Succeeded = 2000, 1999, 2
	lost := live(running(st(batch.JobRunning, task("worker", 2, batch.ReplicaRunning, nil))))
	lost.Notice = "the API server has not answered for 12s; trying again: dial tcp 10.0.0.1:6443: connect: connection refused"

	for _, test := range []struct {
		name          string
		jobs          []Live
		style         Style
		width, height int
	}{
		{"no-status", []Live{live(&batch.JobStatus{})}, Style{}, 80, 20},
		{"pending", []Live{live(pending)}, Style{}, 100, 20},
		{"narrow", []Live{live(pending)}, Style{}, 30, 20},
		{"running", []Live{live(running(st(batch.JobRunning, task("ps", 1, batch.ReplicaRunning, nil), task("worker", 3, batch.ReplicaRunning, two))))}, Style{}, 80, 20},
		{"coloured", []Live{live(running(st(batch.JobRunning, task("worker", 3, batch.ReplicaRunning, two))))}, Style{Colour: true}, 80, 20},
		{"larger-than-the-screen", []Live{live(large)}, Style{}, 110, 16},
		{"much-larger-than-the-screen", []Live{live(large)}, Style{}, 110, 7},
		{"one-line", []Live{live(large)}, Style{}, 80, 1},
		{"cut-status", []Live{live(cut)}, Style{}, 100, 40},
		{"connection-lost", []Live{lost}, Style{}, 100, 20},
		{"two-jobs", []Live{live(pending), live(large)}, Style{}, 110, 24},
		{"two-jobs-in-a-small-window", []Live{live(pending), live(large)}, Style{}, 80, 10},
		{"two-jobs-that-do-not-fit", []Live{live(pending), live(large)}, Style{}, 80, 4},
		{"thirty-jobs", thirty(pending, large), Style{}, 80, 23},
		{"thirty-jobs-on-a-wide-terminal", thirty(pending, large), Style{}, 140, 23},
	} {
		t.Run(test.name, func(t *testing.T) {
			lines := Frame(test.jobs, now, test.style, test.width, test.height)
			if len(lines) > test.height {
				t.Errorf("%d lines, %d fit", len(lines), test.height)
			}
			for _, l := range lines {
				if w := visible(l); w > test.width {
					t.Errorf("%d characters, %d fit: %s", w, test.width, l)
				}
			}
			golden.Compare(t, "testdata/frame-"+test.name+".txt", strings.ReplaceAll(strings.Join(lines, "\n"), own, "␛")+"\n")
		})
	}
}

func TestTransitionsAreDescribed(t *testing.T) {
	worker := func(phase batch.ReplicaPhase, edit func(int, *batch.ReplicaStatus)) *batch.JobStatus {
		return running(st(batch.JobRunning, task("worker", 6, phase, edit)))
	}
	unscheduled := func(message string) *batch.JobStatus {
		return with(st(batch.JobPending, task("worker", 2, batch.ReplicaCreating, nil)), batch.JobRunningCondition, metav1.ConditionFalse, batch.ReasonUnschedulable, message)
	}
	waiting := with(st(batch.JobPending, task("worker", 6, batch.ReplicaCreating, nil)), batch.JobRunningCondition, metav1.ConditionFalse,
		batch.ReasonCreatingReplicas, "0 of 6 replicas run. Starting replicas.")
	someRun := with(st(batch.JobPending, task("worker", 6, batch.ReplicaCreating, func(rank int, r *batch.ReplicaStatus) {
		if rank < 2 {
			r.Phase = batch.ReplicaRunning
		}
	})), batch.JobRunningCondition, metav1.ConditionFalse, batch.ReasonCreatingReplicas, "2 of 6 replicas run. Starting replicas.")
	failed := worker(batch.ReplicaRunning, func(rank int, r *batch.ReplicaStatus) {
		if rank == 2 {
			r.Phase = batch.ReplicaFailed
			exited(r, 137)
		}
	})
	restarted := worker(batch.ReplicaRunning, func(rank int, r *batch.ReplicaStatus) {
		if rank == 2 {
			r.Phase, r.Reason, r.Attempt, r.RestartCount = batch.ReplicaCreating, "Restarting", 1, 1
		}
	})
	replaced := worker(batch.ReplicaRunning, func(rank int, r *batch.ReplicaStatus) {
		if rank%2 == 0 {
			r.Attempt = 1
		}
	})
	over := with(st(batch.JobSucceeded, task("worker", 6, batch.ReplicaSucceeded, nil)), batch.JobCompleted, metav1.ConditionTrue, batch.ReasonSuccessRule, "Every replica has succeeded.")

	var b strings.Builder
	for _, test := range []struct {
		name     string
		old, new *batch.JobStatus
	}{
		{"first sight of a job that waits", nil, waiting},
		{"first sight of a job that runs", nil, worker(batch.ReplicaRunning, nil)},
		{"first sight of a job that restarts a replica", nil, restarted},
		{"the first replicas run", waiting, someRun},
		{"the others too", someRun, worker(batch.ReplicaRunning, nil)},
		{"nothing", waiting, waiting},
		{"the scheduler has something new to say", unscheduled("no room on a"), unscheduled("no room on a, b")},
		{"a replica fails", worker(batch.ReplicaRunning, nil), failed},
		{"it is restarted", failed, restarted},
		{"its restart comes up", restarted, worker(batch.ReplicaRunning, func(rank int, r *batch.ReplicaStatus) {
			if rank == 2 {
				r.Attempt, r.RestartCount = 1, 1
			}
		})},
		{"failure and restart are seen together", worker(batch.ReplicaRunning, nil), restarted},
		{"replicas are replaced", worker(batch.ReplicaRunning, nil), replaced},
		{"the end", worker(batch.ReplicaRunning, nil), over},
	} {
		fmt.Fprintf(&b, "# %s\n", test.name)
		for _, tr := range Transitions("genericjob/mnist", test.old, test.new) {
			b.WriteString(tr.Line("12:01:00", Style{}, 16) + "\n")
		}
	}
	golden.Compare(t, "testdata/transitions.txt", b.String())
}

func TestJobsAreListed(t *testing.T) {
	created := now.Add(-90 * time.Minute)
	finish := metav1.NewTime(now.Add(-10 * time.Second))
	over := st(batch.JobFailed, task("worker", 2, batch.ReplicaFailed, func(_ int, r *batch.ReplicaStatus) { r.RestartCount = 3 }))
	over.CompletionTime = &finish
	jobs := []Job{
		{Kind: "GenericJob", Name: "fresh", Namespace: "a", Created: now.Add(-time.Second), Status: &batch.JobStatus{}},
		{Kind: "GenericJob", Name: "mnist", Namespace: "a", Queue: "gold", Created: created, Status: st(batch.JobRunning, task("worker", 2, batch.ReplicaRunning, nil))},
		{Kind: "GenericJob", Name: "resnet-50-large", Namespace: "b", Created: created, Status: over},
	}
	var b strings.Builder
	for _, o := range []struct{ namespaces, wide bool }{{false, false}, {false, true}, {true, false}} {
		b.WriteString(strings.Join(Jobs(jobs, now, o.namespaces, o.wide).Lines(Style{}, "", 0), "\n") + "\n\n")
	}
	golden.Compare(t, "testdata/jobs.txt", b.String())
}

func TestSummaryCountsResults(t *testing.T) {
	end := metav1.NewTime(now)
	good := with(st(batch.JobSucceeded, task("worker", 2, batch.ReplicaSucceeded, nil)), batch.JobCompleted, metav1.ConditionTrue, batch.ReasonSuccessRule, "Every replica has succeeded.")
	bad := with(st(batch.JobFailed, task("worker", 2, batch.ReplicaFailed, func(_ int, r *batch.ReplicaStatus) { r.RestartCount = 3 })),
		batch.JobFailedCondition, metav1.ConditionTrue, batch.ReasonFailureRule, `Failure rule {"worker":[1]} holds.`)
	var b strings.Builder
	for _, s := range []*batch.JobStatus{good, bad} {
		s.CompletionTime = &end
		b.WriteString(strings.Join(Summary(Job{Ref: "genericjob/mnist", Status: s}, Style{}, 0), "\n") + "\n")
	}
	golden.Compare(t, "testdata/summary.txt", b.String())
}

func TestDescriptionShowsTheJob(t *testing.T) {
	limit := int32(3)
	ttl := 2 * time.Hour
	template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Image: "trainer:1", Command: []string{"python", "train.py"}, Args: []string{"--epochs", "10"},
	}}}}
	s := with(st(batch.JobPending, task("worker", 2, batch.ReplicaCreating, func(rank int, r *batch.ReplicaStatus) {
		if rank == 1 {
			r.Phase, r.RestartCount = batch.ReplicaRunning, 1
		}
	})), batch.JobRunningCondition, metav1.ConditionFalse, batch.ReasonUnschedulable, "1 of 2 replicas run. Pod mnist-worker-0: no room.")
	d := Description{
		Job:  Job{Kind: "GenericJob", Ref: "genericjob/mnist", Namespace: "team", Name: "mnist", Created: start.Time, Status: s},
		Meta: &metav1.ObjectMeta{Labels: map[string]string{"b": "2", "a": "1"}},
		Ages: live(s).Ages,
		Events: []corev1.Event{
			{Type: "Normal", Reason: "JobStarted", Message: "Starting 2 replicas.", EventTime: metav1.NewMicroTime(start.Time),
				InvolvedObject: corev1.ObjectReference{Kind: "GenericJob", Name: "mnist"}},
			{Type: "Warning", Reason: "FailedScheduling", Message: "0/1 nodes are available.", Count: 4, LastTimestamp: metav1.NewTime(now.Add(-5 * time.Second)),
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "mnist-worker-0"}},
		},
	}
	d.Normal = &engine.Job{
		CleanUp: batch.CleanUpNone, TTL: &ttl, Gang: &engine.Gang{Queue: "gold", Priority: 5, MinMember: 2},
		Service: &engine.Service{Ports: []corev1.ServicePort{{Name: "http", Port: 2222}, {Port: 80}}},
		Roles: []engine.Role{
			{Type: "worker", Replicas: 2, Restart: engine.Restart{OnFailure: true, Limit: &limit}, Template: template},
			{Type: "ps", Replicas: 0, Restart: engine.Restart{OnFailure: true, OnSuccess: true}, Template: template},
		},
	}
	text := strings.Join(d.Lines(now, Style{}, 0), "\n") + "\n"
	invalid := Description{Job: Job{Kind: "GenericJob", Name: "bad", Namespace: "team", Created: start.Time, Status: &batch.JobStatus{}},
		Meta: &metav1.ObjectMeta{}, Invalid: "spec.replicaSpecs: Required value"}
	text += "\n" + strings.Join(invalid.Lines(now, Style{}, 0), "\n") + "\n"
	gone := d
	gone.Gone, gone.Events = now.Add(-time.Minute), nil
	gone.Status = running(st(batch.JobRunning, task("worker", 2, batch.ReplicaRunning, nil)))
	text += "\n" + strings.Join(gone.Lines(now, Style{}, 0), "\n") + "\n"
	golden.Compare(t, "testdata/description.txt", text)
}

// training returns the converted form of an elastic training job that torchrun runs.
func training() *engine.Job {
	limit, deadline := int32(3), time.Hour
	rule := []engine.Rule{{Text: `{"worker":[0]}`, Members: []engine.Member{{}}}}
	return &engine.Job{
		CleanUp: batch.CleanUpNone, RestartLimit: &limit, Deadline: &deadline, Elastic: &engine.Elastic{Min: 2, Max: 4},
		Success: rule, Failure: rule, Rendezvous: &engine.Rendezvous{Endpoint: "mnist-worker-0:29500", Backend: "c10d"}, Service: &engine.Service{Ports: []corev1.ServicePort{{Name: "pytorch", Port: 29500}}},
		Roles: []engine.Role{{Type: "worker", Replicas: 3, Restart: engine.Restart{RestartCodes: []engine.CodeRange{{First: 137, Last: 137}}},
			Template: &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "pytorch", Image: "torch",
				Command: []string{"torchrun", "--nnodes", "2:4", "--rdzv_backend", "c10d", "--rdzv_endpoint", "mnist-worker-0:29500"}, Args: []string{"train.py"}}}}}}},
	}
}

func TestTrainingJobIsShown(t *testing.T) {
	s := running(st(batch.JobRunning, task("worker", 3, batch.ReplicaRunning, func(rank int, r *batch.ReplicaStatus) {
		if rank == 1 {
			r.RestartCount = 1
		}
	})))
	s.BackoffCount, s.Restarts, s.Replicas, s.Selector = 1, 1, 3, "a=b"
	job := Job{Kind: "PyTorchTrainingJob", Ref: "pytorchtrainingjob/mnist", Namespace: "team", Name: "mnist", Created: start.Time, Status: s, Normal: training()}
	d := Description{Job: job, Meta: &metav1.ObjectMeta{}, Ages: live(s).Ages}
	smaller := s.DeepCopy()
	smaller.Replicas = 2
	smaller.Tasks[0].Replicas = smaller.Tasks[0].Replicas[:2]
	over, end := job, metav1.NewTime(now)
	over.Status = with(s.DeepCopy(), batch.JobCompleted, metav1.ConditionTrue, batch.ReasonSuccessRule, "Replica mnist-worker-0 has succeeded.")
	over.Status.CompletionTime = &end
	var b strings.Builder
	for _, lines := range [][]string{
		{job.Plan()},
		Frame([]Live{{Job: job, Ages: live(s).Ages}}, now, Style{}, 100, 20),
		d.Lines(now, Style{}, 0),
		{Transitions(job.Ref, s, smaller)[0].Line("12:01:00", Style{}, 0)},
		Summary(over, Style{}, 0),
	} {
		b.WriteString(strings.Join(lines, "\n") + "\n\n")
	}
	golden.Compare(t, "testdata/training.txt", b.String())
}

// TestDescriptionShowsTheTensorBoard verifies that the description shows the state of a job's TensorBoard in one line.
func TestDescriptionShowsTheTensorBoard(t *testing.T) {
	for want, board := range map[string]*batch.DependentStatus{
		"": nil,
		`TensorBoard: ready: "t9k tensorboard mnist" shows it`:    {Ready: true, Type: corev1.EventTypeNormal, Reason: "Running", Note: "TensorBoard answers."},
		"TensorBoard: Starting: It is being started.":             {Type: corev1.EventTypeNormal, Reason: "Starting", Note: "It is being started."},
		"TensorBoard: NameTaken: delete it, or rename the job it": {Type: corev1.EventTypeWarning, Reason: "NameTaken", Note: "delete it,\nor rename the job it"},
	} {
		d := Description{Job: live(st(batch.JobRunning)).Job, Meta: &metav1.ObjectMeta{}, TensorBoard: board}
		got := ""
		for _, line := range d.Lines(now, Style{}, 0) {
			if strings.HasPrefix(line, "TensorBoard:") {
				got = strings.Join(strings.Fields(line), " ")
			}
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
