package jobcontroller

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/kinds/kindtest"
)

func TestTransitionsAreCountedOnce(t *testing.T) {
	created := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) *metav1.Time {
		m := metav1.NewTime(created.Add(time.Duration(seconds) * time.Second))
		return &m
	}
	status := func(change ...func(*batch.JobStatus)) *batch.JobStatus {
		s := &batch.JobStatus{StartTime: at(2), Conditions: []batch.JobCondition{
			{Type: batch.JobRunningCondition, Status: metav1.ConditionFalse, Reason: batch.ReasonCreatingReplicas, LastTransitionTime: *at(2)},
			{Type: batch.JobPausedCondition, Status: metav1.ConditionFalse, Reason: batch.ReasonNotPaused, LastTransitionTime: *at(2)}}}
		for _, c := range change {
			c(s)
		}
		return s
	}
	runs := func(s *batch.JobStatus) {
		s.Conditions[0] = batch.JobCondition{Type: batch.JobRunningCondition, Status: metav1.ConditionTrue, Reason: batch.ReasonReplicasRunning, LastTransitionTime: *at(5)}
	}
	debugs := func(s *batch.JobStatus) { runs(s); s.Conditions[0].Reason = batch.ReasonDebugging }
	resumed := func(s *batch.JobStatus) { s.Conditions[1].Reason = batch.ReasonResumed }
	ran := func(s *batch.JobStatus) { s.RunSeconds = 7 }
	ended := func(s *batch.JobStatus) { s.CompletionTime, s.Phase = at(60), batch.JobFailed }
	resumedAt := func(s *batch.JobStatus) { s.StartTime = at(100) }
	incident := func(n int32, i batch.Incident) func(*batch.JobStatus) {
		return func(s *batch.JobStatus) { s.Restarts, s.Incident = n, &i }
	}
	failure := batch.Incident{Scope: batch.RestartJob, Charged: true, Reason: "StartError"}
	for name, test := range map[string]struct {
		old, written                *batch.JobStatus
		firstPod, running, finished int // seconds; 0 if the write does not count
		restarts                    int32
		cause                       string
	}{
		"the first status":                      {old: &batch.JobStatus{}, written: status(), firstPod: 2},
		"a rejected job":                        {old: &batch.JobStatus{}, written: &batch.JobStatus{CompletionTime: at(1)}, finished: 1},
		"all run":                               {old: status(), written: status(runs), running: 5},
		"a first status in which all run":       {old: &batch.JobStatus{}, written: status(runs), firstPod: 2, running: 5},
		"all run on":                            {old: status(runs), written: status(runs)},
		"all run in debug mode":                 {old: status(), written: status(debugs)},
		"all run again after a pause":           {old: status(resumed), written: status(resumed, runs)},
		"resumed after a pause":                 {old: status(), written: status(resumedAt)},
		"all run again after a disruption":      {old: status(ran), written: status(ran, runs)},
		"all run again after an incident":       {old: status(incident(1, failure)), written: status(incident(1, failure), runs)},
		"the job ends":                          {old: status(runs), written: status(ended), finished: 60},
		"an ended job is cleaned up":            {old: status(ended), written: status(ended)},
		"an incident":                           {old: status(runs), written: status(incident(1, failure)), restarts: 1, cause: "failure"},
		"more replicas join an incident":        {old: status(incident(1, failure)), written: status(incident(1, failure))},
		"two incidents in one write":            {old: status(runs), written: status(incident(2, failure)), restarts: 2, cause: "failure"},
		"an incident by a disruption":           {old: status(runs), written: status(incident(1, batch.Incident{Reason: "Disrupted"})), restarts: 1, cause: "disruption"},
		"an incident out of memory":             {old: status(runs), written: status(incident(1, batch.Incident{Charged: true, Reason: "OOMKilled"})), restarts: 1, cause: "out_of_memory"},
		"an incident by exceeding its own disk": {old: status(runs), written: status(incident(1, batch.Incident{Charged: true, Reason: "Evicted"})), restarts: 1, cause: "evicted"},
	} {
		t.Run(name, func(t *testing.T) {
			got := transitionOf(created, test.old, test.written)
			seconds := func(d *time.Duration) int {
				if d == nil {
					return 0
				}
				return int(d.Seconds())
			}
			if f, r, e := seconds(got.firstPod), seconds(got.running), seconds(got.finished); f != test.firstPod || r != test.running || e != test.finished {
				t.Errorf("first pod, running and finished are after %d, %d and %d s; want %d, %d and %d", f, r, e, test.firstPod, test.running, test.finished)
			}
			if got.restarts != test.restarts || got.cause != test.cause {
				t.Errorf("%d restarts because of %q; want %d because of %q", got.restarts, got.cause, test.restarts, test.cause)
			}
		})
	}
}

func TestOldestJobWithoutPods(t *testing.T) {
	now := time.Date(2024, 1, 1, 12, 0, 0, 0, time.UTC)
	started := metav1.NewTime(now)
	job := func(name string, age time.Duration, s batch.JobStatus) *batch.GenericJob {
		j := &batch.GenericJob{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, CreationTimestamp: metav1.NewTime(now.Add(-age))}}
		j.Status.JobStatus = s
		return j
	}
	scheme := runtime.NewScheme()
	if err := batch.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	others := []client.Object{
		job("started", 5*time.Hour, batch.JobStatus{Phase: batch.JobPending, StartTime: &started}),
		job("paused", 4*time.Hour, batch.JobStatus{Phase: batch.JobPaused}), job("rejected", 3*time.Hour, batch.JobStatus{Phase: batch.JobFailed}),
	}
	for name, test := range map[string]struct {
		more []client.Object
		want time.Duration
	}{
		"none":             {},
		"one not seen":     {[]client.Object{job("new", time.Minute, batch.JobStatus{})}, time.Minute},
		"the older of two": {[]client.Object{job("new", time.Minute, batch.JobStatus{}), job("pending", time.Hour, batch.JobStatus{Phase: batch.JobPending})}, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(slices.Clone(others), test.more...)...).Build()
			counts, oldest, err := newJobCollector(*kindtest.Named("GenericJob"), c).count(t.Context(), now)
			if err != nil || oldest != test.want || counts[batch.JobPaused] != 1 {
				t.Errorf("the oldest is %s old, want %s; counts %v (%v)", oldest, test.want, counts, err)
			}
		})
	}
}
