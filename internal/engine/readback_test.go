package engine

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// forgedStatuses are statuses that any user who may write statuses could write.
var forgedStatuses = map[string]string{
	"ranks without end":            `{"runMode":"Immediate","tasks":[{"type":"worker","restartCount":0,"omitted":[{"ranks":"0-9000000000000000000","phase":"Running"}]}]}`,
	"the same ranks many times":    `{"runMode":"Immediate","tasks":[{"type":"worker","restartCount":0,"omitted":[{"ranks":"0-9,0-9,0-9,0-9","phase":"Succeeded"},{"ranks":"0-9","phase":"Failed","exitCode":1}]}]}`,
	"counts at the end of int32":   `{"runMode":"Immediate","tasks":[{"type":"worker","restartCount":2147483647,"replicas":[{"name":"job-worker-0","phase":"Failed","restartCount":2147483647,"attempt":2147483647,"backoff":2147483647}]}]}`,
	"negative counts":              `{"runMode":"Immediate","backoffCount":-5,"replicas":-1,"tasks":[{"type":"worker","restartCount":-2147483648,"replicas":[{"name":"job-worker-0","phase":"Failed","restartCount":-7,"attempt":-7,"backoff":-7}]}]}`,
	"omitted replicas without end": `{"runMode":"Immediate","tasks":[{"type":"worker","restartCount":0,"omittedReplicas":2147483647,"omitted":[{"ranks":"0","phase":"Succeeded"}]}]}`,
	"fewer than no replicas":       `{"runMode":"Immediate","tasks":[{"type":"worker","restartCount":0,"omittedReplicas":-2147483648,"omitted":[{"ranks":"0","phase":"Succeeded"}]}]}`,
	"an end without its opposite":  `{"runMode":"Immediate","conditions":[{"type":"Failed","status":"True"}]}`,
	"success without its opposite": `{"runMode":"Pause","phase":"Succeeded","conditions":[{"type":"Completed","status":"True"}]}`,
	"unknown words":                `{"runMode":"Dance","phase":"Asleep","tasks":[{"type":"worker","restartCount":0,"replicas":[{"name":"job-worker-1","phase":"Lost","uid":"?"}]}]}`,
	"times out of the world":       `{"runMode":"Immediate","startTime":"0001-01-01T00:00:00Z","completionTime":"9999-12-31T23:59:59Z","conditions":[{"type":"Completed","status":"True"},{"type":"Failed","status":"False"}]}`,
}

func TestForgedStatusesAreHarmless(t *testing.T) {
	for name, text := range forgedStatuses {
		t.Run(name, func(t *testing.T) { readBack(t, []byte(text)) })
	}
}

func FuzzStatusReadBack(f *testing.F) {
	for _, text := range forgedStatuses {
		f.Add([]byte(text))
	}
	f.Fuzz(readBack)
}

// readBack runs jobs of several types, with and without pods, from a status that any user who may write statuses could
// have written. It verifies that the passes end in time, and that they write sane statuses and counts.
func readBack(t *testing.T, text []byte) {
	status := &batch.JobStatus{}
	if json.Unmarshal(text, status) != nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, kind := range []func(*testing.T, int, int32) *play{newPlay, newTraining, newElastic} {
			checkReadBack(t, kind(t, 3, math.MaxInt32), status.DeepCopy())
			ran := kind(t, 3, math.MaxInt32).pass().run(0, 1, 2).exit(1, 1)
			ran.pod(1).Annotations[batch.AnnotationRestarts], ran.pod(1).Annotations[batch.AnnotationBackoff] = "2147483647", "2147483647"
			ran.pod(1).Labels[batch.LabelReplicaAttempt] = "2147483647"
			checkReadBack(t, ran, status.DeepCopy())
		}
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("reading %.200s takes too long", text)
	}
}

func newElastic(t *testing.T, replicas int, limit int32) *play {
	p := newTraining(t, replicas, limit)
	p.job.Elastic = &Elastic{Min: 1, Max: 9}
	return p
}

func checkReadBack(t *testing.T, p *play, status *batch.JobStatus) {
	t.Helper()
	p.stat = status
	for range 3 {
		if p.after(time.Minute).pass(); p.plan.Status != nil {
			checkSane(t, p.plan.Status)
		}
	}
	for _, pod := range p.pods {
		for _, count := range []string{pod.Annotations[batch.AnnotationRestarts], pod.Annotations[batch.AnnotationBackoff], pod.Labels[batch.LabelReplicaAttempt]} {
			if strings.HasPrefix(count, "-") {
				t.Fatalf("pod %s carries %v, %v", pod.Name, pod.Labels, pod.Annotations)
			}
		}
	}
}

// checkSane checks the invariants of every status of a small job.
func checkSane(t *testing.T, s *batch.JobStatus) {
	t.Helper()
	a := s.Aggregate
	if sum := a.Creating + a.Pending + a.Running + a.Succeeded + a.Failed + a.Unknown + a.Deleted; sum != s.Replicas || sum > 9 {
		t.Fatalf("aggregate %+v adds up to %d of %d replicas", a, sum, s.Replicas)
	}
	over := conditionTrue(s, batch.JobCompleted) || conditionTrue(s, batch.JobFailedCondition)
	if len(s.Conditions) != 6 || s.BackoffCount < 0 || over && conditionTrue(s, batch.JobRunningCondition) {
		t.Fatalf("%d restarts, conditions %+v", s.BackoffCount, s.Conditions)
	}
	for i := range s.Tasks {
		for _, r := range s.Tasks[i].Replicas {
			if r.RestartCount < 0 || r.Attempt < 0 || r.Backoff < 0 {
				t.Fatalf("a count below 0: %+v", r)
			}
		}
	}
}
