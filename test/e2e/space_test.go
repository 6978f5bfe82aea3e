package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/gate"
	"tensorstack.dev/batch/test/kit/history"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/namespace"
	"tensorstack.dev/batch/test/kit/plane"
	"tensorstack.dev/batch/test/kit/watch"
)

// space is a namespace of a test on a cluster, with a gate for the processes of its pods.
type space struct {
	*namespace.Test
	*gate.Gate
	history *history.History
	fences  int
}

// newSpace creates a namespace on the shared cluster and lets the test run in parallel with others.
func newSpace(t *testing.T) *space {
	t.Helper()
	requireCluster(t)
	t.Parallel()
	return newSpaceOn(t, shared.Get(t))
}

// newSpaceOn creates a namespace on a cluster, and records its history, which checks the status of every job.
func newSpaceOn(t *testing.T, c *plane.Plane) *space {
	t.Helper()
	s := &space{Test: namespace.New(t, c), Gate: gate.New(t)}
	s.AwaitServiceAccount() // without the account, the first pods would be refused or delayed
	s.history = history.Record(s.Test)
	return s
}

// edit changes a live job.
func (s *space) edit(name string, change func(*batch.GenericJob)) {
	s.Helper()
	if err := s.tryEdit(name, change); err != nil {
		s.Fatal(err)
	}
}

// tryEdit sends a change of a job as a patch, and returns the error, if any.
func (s *space) tryEdit(name string, change func(*batch.GenericJob)) error {
	s.Helper()
	j := s.job(name)
	base := j.DeepCopy()
	change(j)
	return s.Client.Patch(s.Context(), j, client.MergeFrom(base))
}

// job reads a job.
func (s *space) job(name string) *batch.GenericJob {
	s.Helper()
	j := &batch.GenericJob{}
	if err := s.Client.Get(s.Context(), client.ObjectKey{Namespace: s.Namespace, Name: name}, j); err != nil {
		s.Fatal(err)
	}
	return j
}

// awaitJob waits until cond holds for a job, and returns the job.
func (s *space) awaitJob(name, what string, cond func(*batch.GenericJob) bool) *batch.GenericJob {
	s.Helper()
	return namespace.AwaitList(s.Test, "job "+name+": "+what, &batch.GenericJobList{}, func(jobs []*batch.GenericJob) bool {
		return len(jobs) == 1 && cond(jobs[0])
	}, watch.Named(name))[0]
}

// awaitPhase waits until a job has the phase, and returns the job. The test fails if the job ends in another phase.
func (s *space) awaitPhase(name string, phase batch.JobPhase) *batch.GenericJob {
	s.Helper()
	j := s.awaitJob(name, "phase "+string(phase), func(j *batch.GenericJob) bool {
		return j.Status.Phase == phase || jobs.Over(j)
	})
	if j.Status.Phase != phase {
		s.Fatalf("job %s is %s, want %s\n%s", name, j.Status.Phase, phase, s.Dump())
	}
	return j
}

// pods waits until cond holds for the pods of a job, sorted by name, and returns them.
func (s *space) pods(job, what string, cond func([]*corev1.Pod) bool) []*corev1.Pod {
	s.Helper()
	return namespace.AwaitList(s.Test, "pods of "+job+": "+what, &corev1.PodList{}, cond, client.MatchingLabels{batch.LabelJobName: job})
}

// pod waits until cond holds for a pod, and returns it.
func (s *space) pod(name, what string, cond func(*corev1.Pod) bool) *corev1.Pod {
	s.Helper()
	return namespace.AwaitList(s.Test, "pod "+name+": "+what, &corev1.PodList{}, func(pods []*corev1.Pod) bool {
		return len(pods) == 1 && cond(pods[0])
	}, watch.Named(name))[0]
}

// podNow returns the current state of a pod.
func (s *space) podNow(name string) *corev1.Pod {
	s.Helper()
	p := &corev1.Pod{}
	if err := s.Client.Get(s.Context(), client.ObjectKey{Namespace: s.Namespace, Name: name}, p); err != nil {
		s.Fatal(err)
	}
	return p
}

// log returns the log of a container.
func (s *space) log(pod, container string) string {
	s.Helper()
	data, err := s.Core.CoreV1().Pods(s.Namespace).GetLogs(pod, &corev1.PodLogOptions{Container: container}).DoRaw(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	return string(data)
}

// occurrences returns how often an event of the reason was emitted about an object.
func occurrences(events []*eventsv1.Event, object, reason string) int {
	n := 0
	for _, e := range events {
		if e.Regarding.Name != object || e.Reason != reason {
			continue
		}
		n++
		if e.Series != nil {
			n += int(e.Series.Count) - 1
		}
	}
	return n
}

// awaitEvent waits for an event about an object with the reason and with a note that contains text, and returns the
// event.
func (s *space) awaitEvent(object string, reason batch.Reason, text string) *eventsv1.Event {
	s.Helper()
	var found *eventsv1.Event
	namespace.AwaitList(s.Test, fmt.Sprintf("an event %s about %s with %q", reason, object, text), &eventsv1.EventList{}, func(events []*eventsv1.Event) bool {
		for _, e := range events {
			if e.Regarding.Name == object && e.Reason == string(reason) && strings.Contains(e.Note, text) {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

// written returns the text that the processes of the test have written to a file in the gate; empty if there is none.
func (s *space) written(name string) string {
	s.Helper()
	text, err := s.Read(name)
	s.Must(err)
	return text
}
