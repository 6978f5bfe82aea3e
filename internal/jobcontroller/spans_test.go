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

func TestSpansOfAStart(t *testing.T) {
	created := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) metav1.Time {
		return metav1.NewTime(created.Add(time.Duration(seconds) * time.Second))
	}
	type change = func(*batch.JobStatus)
	status := func(changes ...change) *batch.JobStatus {
		begun := at(1)
		s := &batch.JobStatus{StartTime: &begun, Phase: batch.JobPending, Conditions: []batch.JobCondition{
			{Type: batch.JobRunningCondition, Status: metav1.ConditionFalse, Reason: batch.ReasonCreatingReplicas, LastTransitionTime: at(1)},
			{Type: batch.JobFailedCondition, Status: metav1.ConditionFalse, Reason: batch.ReasonNotFinished, LastTransitionTime: at(1)},
			{Type: batch.JobPausedCondition, Status: metav1.ConditionFalse, Reason: batch.ReasonNotPaused, LastTransitionTime: at(1)}}}
		for _, c := range changes {
			c(s)
		}
		return s
	}
	running := func(yes metav1.ConditionStatus, reason batch.Reason, seconds int) change {
		return func(s *batch.JobStatus) {
			s.Conditions[0] = batch.JobCondition{Type: batch.JobRunningCondition, Status: yes, Reason: reason, LastTransitionTime: at(seconds)}
		}
	}
	runs, runsLater := running(metav1.ConditionTrue, batch.ReasonReplicasRunning, 9), running(metav1.ConditionTrue, batch.ReasonReplicasRunning, 99)
	debugs := running(metav1.ConditionTrue, batch.ReasonDebugging, 9)
	unknown := running(metav1.ConditionFalse, batch.ReasonReplicaUnknown, 20)
	ran := func(s *batch.JobStatus) { s.RunSeconds = 7 }
	ended := func(phase batch.JobPhase) change {
		return func(s *batch.JobStatus) {
			end := at(9)
			s.CompletionTime, s.Phase = &end, phase
			if phase == batch.JobFailed {
				s.Conditions[1].Status, s.Conditions[1].Reason = metav1.ConditionTrue, batch.ReasonReplicaFailed
			}
		}
	}
	restarts := func(s *batch.JobStatus) {
		s.Restarts, s.Incident = 1, &batch.Incident{StartTime: at(6), ExitCode: new(int32(3)), Message: "secret"}
	}
	pause := func(s *batch.JobStatus) {
		s.RunMode, s.Conditions[2].Status, s.Conditions[2].Reason = batch.RunPause, metav1.ConditionTrue, batch.ReasonPaused
	}
	resumed := func(s *batch.JobStatus) {
		begun := at(4)
		s.StartTime, s.Conditions[2].Reason = &begun, batch.ReasonResumed
	}
	pod := func(made, bound int) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(made)}}
		if bound > 0 {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: at(bound)}}
		}
		return trimPod(p)
	}
	pods := []*corev1.Pod{pod(2, 5), pod(3, 4)}
	gang := &engine.Gang{Queue: "research"}
	for name, test := range map[string]struct {
		old, written *batch.JobStatus
		pods         []*corev1.Pod
		gang         *engine.Gang
		want         string // each span with its bounds
		outcome      string
	}{
		"all run":                    {old: status(), written: status(runs), pods: pods, want: "start job 0-9, create pods 0-3, schedule pods 3-5, start pods 5-9", outcome: "Running"},
		"a gang":                     {old: status(), written: status(runs), pods: pods, gang: gang, want: "start job 0-9, create pods 0-3, start pods 5-9", outcome: "Running"},
		"a first status":             {old: &batch.JobStatus{}, written: status(runs), pods: pods, want: "start job 0-9, create pods 0-3, schedule pods 3-5, start pods 5-9", outcome: "Running"},
		"the job still starts":       {old: &batch.JobStatus{}, written: status(), pods: pods},
		"debug mode":                 {old: status(), written: status(debugs), pods: pods},
		"from debug mode":            {old: status(debugs), written: status(runs), pods: pods, want: "start job 0-9, create pods 0-3, schedule pods 3-5, start pods 5-9", outcome: "Running"},
		"a pause":                    {old: status(), written: status(pause)},
		"all run after a pause":      {old: status(pause), written: status(resumed, runs), pods: []*corev1.Pod{pod(5, 6)}, want: "start job 0-9, create pods 4-5, schedule pods 5-6, start pods 6-9", outcome: "Running"},
		"the job ends at once":       {old: status(), written: status(ended(batch.JobSucceeded), ran), pods: pods, want: "start job 0-9, create pods 0-3, schedule pods 3-5, start pods 5-9", outcome: "Succeeded"},
		"the job fails":              {old: status(), written: status(ended(batch.JobFailed)), pods: []*corev1.Pod{pod(2, 5), pod(3, 0)}, want: "start job 0-9 ReplicaFailed, create pods 0-3", outcome: "Failed"},
		"the job is rejected":        {old: &batch.JobStatus{}, written: status(ended(batch.JobFailed)), want: "start job 0-9 ReplicaFailed", outcome: "Failed"},
		"a replica restarts":         {old: status(), written: status(restarts), pods: pods, want: "start job 0-6 ExitCode3, create pods 0-3, schedule pods 3-5, start pods 5-6", outcome: "Restarting"},
		"a replica was replaced":     {old: status(), written: status(restarts), pods: []*corev1.Pod{pod(8, 9)}, want: "start job 0-6 ExitCode3, create pods 0-6, schedule pods 6-6, start pods 6-6", outcome: "Restarting"},
		"a clock is late":            {old: status(), written: status(running(metav1.ConditionTrue, batch.ReasonReplicasRunning, -5)), pods: pods, want: "start job 0-0, create pods 0-0, schedule pods 0-0, start pods 0-0", outcome: "Running"},
		"all run on":                 {old: status(runs), written: status(runs)},
		"the running job ends":       {old: status(runs), written: status(ended(batch.JobFailed))},
		"a running replica restarts": {old: status(runs), written: status(restarts)},
		"all run after a restart":    {old: status(restarts), written: status(restarts, runsLater)},
		"all run after a lost node":  {old: status(ran, unknown), written: status(ran, runsLater)},
		"the ended job is cleaned":   {old: status(ended(batch.JobFailed)), written: status(ended(batch.JobFailed))},
	} {
		t.Run(name, func(t *testing.T) {
			job := &engine.Job{Kind: "GenericJob", Namespace: "a", Name: "j", UID: "uid", Gang: test.gang}
			var got []string
			outcome, queue := "", ""
			for _, s := range startSpans(job, created, test.old, test.written, test.pods) {
				text := fmt.Sprintf("%s %.0f-%.0f %s", s.Name, s.Start.Sub(created).Seconds(), s.End.Sub(created).Seconds(), s.Failure)
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
