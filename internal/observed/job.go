// Package observed interprets stored jobs of any kind, their statuses and their events: whether a job has finished and
// why, how long it has run, and how each replica ended. It also orders the groups that wait in a queue. The package
// does no I/O. The command line and the console render its results. Start reading at Job.
package observed

import (
	"fmt"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
)

// Job is a job of any kind, as it is stored in the cluster.
type Job struct {
	Kind *kinds.Kind
	// Raw is the stored object; nil if only the typed object was read.
	Raw *unstructured.Unstructured
	kinds.Object
}

// New converts an object of a kind to a Job. It keeps the object as Raw.
func New(kind *kinds.Kind, raw *unstructured.Unstructured) (*Job, error) {
	typed := kind.New()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, typed); err != nil {
		return nil, fmt.Errorf("reading %s: %w", Ref(kind, raw.GetName()), err)
	}
	return &Job{Kind: kind, Raw: raw, Object: typed}, nil
}

// Ref returns a reference to a job as KIND/NAME, for example genericjob/mnist.
func Ref(kind *kinds.Kind, name string) string { return strings.ToLower(kind.Name) + "/" + name }

// Ref returns a reference to the job as KIND/NAME.
func (j *Job) Ref() string { return Ref(j.Kind, j.GetName()) }

// Status returns the job's status, which has the same type for all kinds.
func (j *Job) Status() *batch.JobStatus { return j.Kind.Status(j.Object) }

// AsInstalled accepts jobs of any size that the API allows. Clients use it, because they do not know the limits of the
// cluster's operator.
var AsInstalled = kinds.Limits{MaxReplicas: math.MaxInt32}

// Normal converts the job to an engine.Job. If the job is invalid, Normal returns an error that lists its errors.
func (j *Job) Normal() (*engine.Job, error) {
	if errs := j.Kind.Validate(j.Object, AsInstalled); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return j.Kind.Convert(j.Object), nil
}

// Queue returns the queue of the t9k-scheduler that the job names; empty if the job names none or cannot be
// interpreted.
func (j *Job) Queue() string {
	if g := j.Kind.Convert(j.Object).Gang; g != nil {
		return g.Queue
	}
	return ""
}

// User returns the user who requested the job's queue, as recorded at admission; empty if none was recorded.
func (j *Job) User() string {
	return Requester(j.GetAnnotations()[scheduling.AnnotationRequestedBy])
}

// Selector returns the label selector of the job's pods.
func (j *Job) Selector() string {
	return fmt.Sprintf("%s=%s,%s=%s", batch.LabelJobName, j.GetName(), batch.LabelJobKind, j.Kind.Name)
}
