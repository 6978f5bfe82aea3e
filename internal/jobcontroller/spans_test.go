package jobcontroller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// spanCreated is the creation time of the job in the span tests.
var spanCreated = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// spanAt returns the time that many seconds after spanCreated.
func spanAt(seconds int) metav1.Time {
	return metav1.NewTime(spanCreated.Add(time.Duration(seconds) * time.Second))
}

// spanStatus returns the status of a job that creates its pods, with the changes applied.
func spanStatus(changes ...func(*batch.JobStatus)) *batch.JobStatus {
	begun := spanAt(1)
	s := &batch.JobStatus{StartTime: &begun, Phase: batch.JobPending, Conditions: []batch.JobCondition{
		{Type: batch.JobRunningCondition, Status: metav1.ConditionFalse, Reason: batch.ReasonCreatingReplicas, LastTransitionTime: spanAt(1)},
		{Type: batch.JobFailedCondition, Status: metav1.ConditionFalse, Reason: batch.ReasonNotFinished, LastTransitionTime: spanAt(1)},
		{Type: batch.JobPausedCondition, Status: metav1.ConditionFalse, Reason: batch.ReasonNotPaused, LastTransitionTime: spanAt(1)}}}
	for _, change := range changes {
		change(s)
	}
	return s
}

// spanRunning returns a change that sets the condition Running, with a transition time in seconds after spanCreated.
func spanRunning(yes metav1.ConditionStatus, reason batch.Reason, seconds int) func(*batch.JobStatus) {
	return func(s *batch.JobStatus) {
		s.Conditions[0] = batch.JobCondition{Type: batch.JobRunningCondition, Status: yes, Reason: reason, LastTransitionTime: spanAt(seconds)}
	}
}

// spanEnd returns a change that ends the job 9 s after spanCreated.
func spanEnd(phase batch.JobPhase) func(*batch.JobStatus) {
	return func(s *batch.JobStatus) {
		end := spanAt(9)
		s.CompletionTime, s.Phase = &end, phase
		if phase == batch.JobFailed {
			s.Conditions[1].Status, s.Conditions[1].Reason = metav1.ConditionTrue, batch.ReasonReplicaFailed
		}
	}
}

// spanPod returns a pod with its times of creation and binding, in seconds after spanCreated. If bound is 0, the pod is
// not bound.
func spanPod(made, bound int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: spanAt(made)}}
	if bound > 0 {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: spanAt(bound)}}
	}
	return trimPod(p)
}

// spanCase is a status write, and the spans that it completes.
type spanCase struct {
	old, written *batch.JobStatus
	pods         []*corev1.Pod
	gang         *engine.Gang
	want         string // each span with its bounds, in seconds after spanCreated, and its failure
	outcome      string
}

func spanCases() map[string]spanCase {
	runs, runsLater := spanRunning(metav1.ConditionTrue, batch.ReasonReplicasRunning, 9), spanRunning(metav1.ConditionTrue, batch.ReasonReplicasRunning, 99)
	debugs := spanRunning(metav1.ConditionTrue, batch.ReasonDebugging, 9)
	unknown := spanRunning(metav1.ConditionFalse, batch.ReasonReplicaUnknown, 20)
	ran := func(s *batch.JobStatus) { s.RunSeconds = 7 }
	restarts := func(s *batch.JobStatus) {
		s.Restarts, s.Incident = 1, &batch.Incident{StartTime: spanAt(6), ExitCode: new(int32(3)), Message: "secret"}
	}
	pause := func(s *batch.JobStatus) {
		s.RunMode, s.Conditions[2].Status, s.Conditions[2].Reason = batch.RunPause, metav1.ConditionTrue, batch.ReasonPaused
	}
	resumed := func(s *batch.JobStatus) {
		begun := spanAt(4)
		s.StartTime, s.Conditions[2].Reason = &begun, batch.ReasonResumed
	}
	pods := []*corev1.Pod{spanPod(2, 5), spanPod(3, 4)}
	gang := &engine.Gang{Queue: "research"}
	return map[string]spanCase{
		"all run":                    {old: spanStatus(), written: spanStatus(runs), pods: pods, want: "start job 0-9, create pods 0-3, schedule pods 3-5, start pods 5-9", outcome: "Running"},
		"a gang":                     {old: spanStatus(), written: spanStatus(runs), pods: pods, gang: gang, want: "start job 0-9, create pods 0-3, start pods 5-9", outcome: "Running"},
		"a first status":             {old: &batch.JobStatus{}, written: spanStatus(runs), pods: pods, want: "start job 0-9, create pods 0-3, schedule pods 3-5, start pods 5-9", outcome: "Running"},
		"the job still starts":       {old: &batch.JobStatus{}, written: spanStatus(), pods: pods},
		"debug mode":                 {old: spanStatus(), written: spanStatus(debugs), pods: pods},
		"from debug mode":            {old: spanStatus(debugs), written: spanStatus(runs), pods: pods, want: "start job 0-9, create pods 0-3, schedule pods 3-5, start pods 5-9", outcome: "Running"},
		"a pause":                    {old: spanStatus(), written: spanStatus(pause)},
		"all run after a pause":      {old: spanStatus(pause), written: spanStatus(resumed, runs), pods: []*corev1.Pod{spanPod(5, 6)}, want: "start job 0-9, create pods 4-5, schedule pods 5-6, start pods 6-9", outcome: "Running"},
		"the job ends at once":       {old: spanStatus(), written: spanStatus(spanEnd(batch.JobSucceeded), ran), pods: pods, want: "start job 0-9, create pods 0-3, schedule pods 3-5, start pods 5-9", outcome: "Succeeded"},
		"the job fails":              {old: spanStatus(), written: spanStatus(spanEnd(batch.JobFailed)), pods: []*corev1.Pod{spanPod(2, 5), spanPod(3, 0)}, want: "start job 0-9 ReplicaFailed, create pods 0-3", outcome: "Failed"},
		"the job is rejected":        {old: &batch.JobStatus{}, written: spanStatus(spanEnd(batch.JobFailed)), want: "start job 0-9 ReplicaFailed", outcome: "Failed"},
		"a replica restarts":         {old: spanStatus(), written: spanStatus(restarts), pods: pods, want: "start job 0-6 ExitCode3, create pods 0-3, schedule pods 3-5, start pods 5-6", outcome: "Restarting"},
		"a replica was replaced":     {old: spanStatus(), written: spanStatus(restarts), pods: []*corev1.Pod{spanPod(8, 9)}, want: "start job 0-6 ExitCode3, create pods 0-6, schedule pods 6-6, start pods 6-6", outcome: "Restarting"},
		"a clock is late":            {old: spanStatus(), written: spanStatus(spanRunning(metav1.ConditionTrue, batch.ReasonReplicasRunning, -5)), pods: pods, want: "start job 0-0, create pods 0-0, schedule pods 0-0, start pods 0-0", outcome: "Running"},
		"all run on":                 {old: spanStatus(runs), written: spanStatus(runs)},
		"the running job ends":       {old: spanStatus(runs), written: spanStatus(spanEnd(batch.JobFailed))},
		"a running replica restarts": {old: spanStatus(runs), written: spanStatus(restarts)},
		"all run after a restart":    {old: spanStatus(restarts), written: spanStatus(restarts, runsLater)},
		"all run after a lost node":  {old: spanStatus(ran, unknown), written: spanStatus(ran, runsLater)},
		"the ended job is cleaned":   {old: spanStatus(spanEnd(batch.JobFailed)), written: spanStatus(spanEnd(batch.JobFailed))},
	}
}

func TestSpansOfAStart(t *testing.T) {
	for name, test := range spanCases() {
		t.Run(name, func(t *testing.T) {
			job := &engine.Job{Kind: "GenericJob", Namespace: "a", Name: "j", UID: "uid", Gang: test.gang}
			var got []string
			outcome, queue := "", ""
			for _, s := range startSpans(job, spanCreated, test.old, test.written, test.pods) {
				text := fmt.Sprintf("%s %.0f-%.0f %s", s.Name, s.Start.Sub(spanCreated).Seconds(), s.End.Sub(spanCreated).Seconds(), s.Failure)
				got = append(got, strings.TrimSpace(text))
				if isRoot := s.Name == "start job"; isRoot != (s.Parent == "") || s.Object != "uid" {
					t.Errorf("%s has parent %q and object %q", s.Name, s.Parent, s.Object)
				}
				for _, a := range s.Attributes {
					switch a.Key {
					case "t9k.job.outcome":
						outcome = a.Value.AsString()
					case "t9k.queue.name":
						queue = a.Value.AsString()
					}
				}
			}
			if all := strings.Join(got, ", "); all != test.want || outcome != test.outcome {
				t.Errorf("the spans are\n%q with outcome %q, want\n%q with outcome %q", all, outcome, test.want, test.outcome)
			}
			if test.gang != nil && queue != test.gang.Queue {
				t.Errorf("the queue is %q", queue)
			}
		})
	}
}
