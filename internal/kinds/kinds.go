// Package kinds converts jobs of every kind to the engine's Job (Kind.Convert) and validates them (Kind.Validate). It
// does no I/O and decides nothing about running jobs. To add a kind of job, define a Kind with its conversion and its
// validation, and add the Kind to All.
//
// Start reading at Kind.
package kinds

import (
	"fmt"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// Object is a job of some kind.
type Object interface {
	metav1.Object
	runtime.Object
}

// Kind describes one kind of job.
type Kind struct {
	// Name is the name of the kind, for example "GenericJob". Plural is its resource in lower case, for example
	// "genericjobs". ShortName is its abbreviation for command lines, for example "gj".
	Name, Plural, ShortName string
	// New returns an empty object, and NewList an empty list.
	New     func() Object
	NewList func() runtime.Object
	// convert converts the spec of an object, whose metadata has been converted already. It never fails: it limits
	// values to their bounds, and leaves out values that have no meaning or marks the conversion as uninterpretable.
	convert func(Object, *conversion)
	// validate reports the errors in an object's spec.
	validate func(Object, *validator)
	// validateUpdate reports the changes that a live job does not accept.
	validateUpdate func(updated, old Object, c *changes)
	// schema describes the CRD's validation rules, which repeat the checks as far as CEL can express them.
	schema schema
	// Default sets unset fields that other programs read; nil if there are none.
	Default func(Object)
	// warn returns warnings about fields without effect that only this kind has; nil if there are none.
	warn func(Object, *engine.Job) warnings
	// framework is the training framework; nil for kinds in which no container is the main one.
	framework *framework
	// Elastic is true if a job of this kind can be elastic. The kind's CRD then has the scale subresource.
	Elastic bool
	// Status returns a pointer to the object's status.
	Status func(Object) *batch.JobStatus
	// Training returns pointers to the parts that all training jobs have in common; nil for other kinds.
	Training func(Object) (*batch.TrainingSpec, *batch.TrainingStatus)
}

// All lists the kinds of job.
var All = []Kind{
	genericJob,
	pyTorchTrainingJob,
	tensorFlowTrainingJob,
}

// Limits holds the limits that an installation sets for all jobs.
type Limits struct {
	// MaxReplicas is the largest number of replicas of one job. Zero means DefaultMaxReplicas.
	MaxReplicas int
}

// DefaultMaxReplicas is the default of Limits.MaxReplicas.
const DefaultMaxReplicas = 10_000

// DefaultClusterDomain is the DNS domain of the cluster if none is configured.
const DefaultClusterDomain = "cluster.local"

func (l Limits) withDefaults() Limits {
	if l.MaxReplicas == 0 {
		l.MaxReplicas = DefaultMaxReplicas
	}
	return l
}

// owns reports whether an object is a non-nil object of this kind.
func (k Kind) owns(o Object) bool {
	v := reflect.ValueOf(o)
	return v.IsValid() && v.Type() == reflect.TypeOf(k.New()) && !v.IsNil()
}

func (k Kind) wrongType(o Object) field.ErrorList {
	return field.ErrorList{field.InternalError(nil, fmt.Errorf("%T is not a %s", o, k.Name))}
}

// ByName returns the kind with the given name, for example "GenericJob". It returns an error if there is none.
func ByName(name string) (Kind, error) {
	for _, k := range All {
		if k.Name == name {
			return k, nil
		}
	}
	return Kind{}, fmt.Errorf("%q is not a kind of job in %s", name, batch.GroupVersion)
}

func seconds(s *int32) *time.Duration {
	if s == nil {
		return nil
	}
	d := time.Duration(*s) * time.Second
	return &d
}
