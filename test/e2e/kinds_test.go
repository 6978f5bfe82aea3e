package e2e

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/namespace"
	"tensorstack.dev/batch/test/kit/watch"
)

// read returns the current version of a job of any kind.
func read[T client.Object](s *space, j T) T {
	s.Helper()
	now := j.DeepCopyObject().(T)
	if err := s.Client.Get(s.Context(), client.ObjectKeyFromObject(j), now); err != nil {
		s.Fatal(err)
	}
	return now
}

// tryChange sends a change of a job of any kind as a patch, and returns the error, if any.
func tryChange[T client.Object](s *space, j T, change func(T)) error {
	s.Helper()
	now := read(s, j)
	base := now.DeepCopyObject().(client.Object)
	change(now)
	return s.Client.Patch(s.Context(), now, client.MergeFrom(base))
}

// change changes a live job of any kind.
func change[T client.Object](s *space, j T, change func(T)) {
	s.Helper()
	if err := tryChange(s, j, change); err != nil {
		s.Fatal(err)
	}
}

// awaitStatus waits until cond holds for the status of a job of any kind, and returns the job.
func awaitStatus[T client.Object](s *space, j T, what string, cond func(*batch.JobStatus) bool) T {
	s.Helper()
	return namespace.AwaitList(s.Test, "job "+j.GetName()+": "+what, jobs.ListOf(jobs.KindOf(j)), func(all []T) bool {
		return len(all) == 1 && cond(jobs.StatusOf(all[0]))
	}, watch.Named(j.GetName()))[0]
}

// awaitPhase waits until a job of any kind has the phase, and returns the job. The test fails if the job ends in
// another phase.
func awaitPhase[T client.Object](s *space, j T, phase batch.JobPhase) T {
	s.Helper()
	j = awaitStatus(s, j, "phase "+string(phase), func(now *batch.JobStatus) bool { return now.Phase == phase || jobs.Ended(now) })
	if got := jobs.StatusOf(j).Phase; got != phase {
		s.Fatalf("job %s is %s, want %s\n%s", j.GetName(), got, phase, s.Dump())
	}
	return j
}

// awaitSeen waits until the status of a job of any kind reflects its current spec, and returns the job.
func awaitSeen[T client.Object](s *space, j T) T {
	s.Helper()
	generation := read(s, j).GetGeneration()
	return awaitStatus(s, j, "the change is observed", func(now *batch.JobStatus) bool { return now.ObservedGeneration >= generation })
}
