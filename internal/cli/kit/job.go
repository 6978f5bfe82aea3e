package kit

import (
	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/observed"
)

// Job is a job of any kind as the cluster stores it.
type Job = observed.Job

// View returns a job in the form that package view renders.
func View(j *Job) view.Job {
	return view.Job{
		Kind: j.Kind.Name, Ref: j.Ref(), Namespace: j.GetNamespace(), Name: j.GetName(),
		Queue: j.Queue(), Created: j.GetCreationTimestamp().Time, Status: j.Status(),
	}
}
