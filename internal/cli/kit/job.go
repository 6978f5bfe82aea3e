package kit

import (
	"fmt"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
)

// Job is a job of any kind as the cluster stores it.
type Job struct {
	Kind *kinds.Kind
	Raw  *unstructured.Unstructured
	kinds.Object
}

// NewJob converts an object of a kind to a Job.
func NewJob(kind *kinds.Kind, raw *unstructured.Unstructured) (*Job, error) {
	typed := kind.New()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, typed); err != nil {
		return nil, fmt.Errorf("reading %s: %w", ref(kind, raw.GetName()), err)
	}
	return &Job{Kind: kind, Raw: raw, Object: typed}, nil
}

// ref returns the full address of a job.
func ref(kind *kinds.Kind, name string) string { return strings.ToLower(kind.Name) + "/" + name }

// Ref returns the job's full address: genericjob/mnist.
func (j *Job) Ref() string { return ref(j.Kind, j.GetName()) }

// Status returns the job's status, which has the same type for all kinds.
func (j *Job) Status() *batch.JobStatus { return j.Kind.Status(j.Object) }

// AsInstalled are limits that accept jobs of any size, because this program does not know the limit of the cluster's
// operator.
var AsInstalled = kinds.Limits{MaxReplicas: math.MaxInt32}

// Normal returns the job as an engine.Job, or an error with the faults of the job.
func (j *Job) Normal() (*engine.Job, error) {
	if faults := j.Kind.Validate(j.Object, AsInstalled); len(faults) > 0 {
		return nil, faults.ToAggregate()
	}
	return j.Kind.Convert(j.Object), nil
}

// View returns the job as package view renders it.
func (j *Job) View() view.Job {
	queue, _, _ := unstructured.NestedString(j.Raw.Object, "spec", "scheduler", "t9kScheduler", "queue")
	return view.Job{
		Kind: j.Kind.Name, Ref: j.Ref(), Namespace: j.GetNamespace(), Name: j.GetName(),
		Queue: queue, Created: j.GetCreationTimestamp().Time, Status: j.Status(),
	}
}

// Selector returns the label selector of the job's pods.
func (j *Job) Selector() string {
	return fmt.Sprintf("%s=%s,%s=%s", batch.LabelJobName, j.GetName(), batch.LabelJobKind, j.Kind.Name)
}
