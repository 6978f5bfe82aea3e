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

// Job is a job of some kind as the cluster holds it.
type Job struct {
	Kind *kinds.Kind
	Raw  *unstructured.Unstructured
	kinds.Object
}

// NewJob reads an object of a kind.
func NewJob(kind *kinds.Kind, raw *unstructured.Unstructured) (*Job, error) {
	typed := kind.New()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, typed); err != nil {
		return nil, fmt.Errorf("reading %s: %w", ref(kind, raw.GetName()), err)
	}
	return &Job{Kind: kind, Raw: raw, Object: typed}, nil
}

// ref addresses a job unmistakably.
func ref(kind *kinds.Kind, name string) string { return strings.ToLower(kind.Name) + "/" + name }

// Ref addresses the job unmistakably: genericjob/mnist.
func (j *Job) Ref() string { return ref(j.Kind, j.GetName()) }

// Status is the job's status, which is the same for all kinds.
func (j *Job) Status() *batch.JobStatus { return j.Kind.Status(j.Object) }

// AsInstalled leaves it to the cluster how large a job may be: an operator may have other limits than the usual ones.
var AsInstalled = kinds.Options{MaxReplicas: math.MaxInt32}

// Lowered is the job's normal form.
func (j *Job) Lowered() (*engine.Job, error) {
	normal, errs := j.Kind.Lower(j.Object, AsInstalled)
	return normal, errs.ToAggregate()
}

// View is what the pictures of the job are drawn from.
func (j *Job) View() view.Job {
	queue, _, _ := unstructured.NestedString(j.Raw.Object, "spec", "scheduler", "t9kScheduler", "queue")
	return view.Job{
		Kind: j.Kind.Name, Ref: j.Ref(), Namespace: j.GetNamespace(), Name: j.GetName(),
		Queue: queue, Created: j.GetCreationTimestamp().Time, Status: j.Status(),
	}
}

// Selector finds the pods of a job.
func (j *Job) Selector() string {
	return fmt.Sprintf("%s=%s,%s=%s", batch.LabelJobName, j.GetName(), batch.LabelJobKind, j.Kind.Name)
}
