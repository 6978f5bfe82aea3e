// Package kinds turns every kind of job into the engine's normal form (Convert), and says what is wrong with a job
// (Validate). A kind is one file with its conversion and one line in All; it holds no behaviour of its own. The package is
// pure.
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

// Kind tells how to handle one kind of job.
type Kind struct {
	// Name is the kind, Plural the resource in lower case, for example "GenericJob" and "genericjobs", ShortName
	// what people type for it, for example "gj".
	Name, Plural, ShortName string
	// New makes an empty object, NewList an empty list.
	New     func() Object
	NewList func() runtime.Object
	// convert completes the normal form of an object, which has its metadata already. It never fails: what is out of bounds
	// becomes the bound, and what means nothing is left out or makes the conversion senseless.
	convert func(Object, *conversion)
	// validate notes what is wrong with an object's spec, as Validate says it.
	validate func(Object, *validator)
	// validateUpdate notes the changes that a live job does not take.
	validateUpdate func(updated, old Object, c *changes)
	// schema says the same to the API server, as far as its rules can.
	schema schema
	// Default fills in what an object leaves out and other programs look for; nil where there is nothing.
	Default func(Object)
	// warn lists what only this kind says to no effect; nil where there is nothing.
	warn func(Object, *engine.Job) warnings
	// Status is the object's status, to read and to write.
	Status func(Object) *batch.JobStatus
	// Training is what all training jobs have in common, to read and to write; nil for jobs of other kinds.
	Training func(Object) (*batch.TrainingSpec, *batch.TrainingStatus)
}

// All lists the kinds of job.
var All = []Kind{
	genericJob,
	pyTorchTrainingJob,
	tensorFlowTrainingJob,
}

// Limits are those of an installation.
type Limits struct {
	// MaxReplicas is the largest number of replicas of one job. Defaults to 10,000.
	MaxReplicas int
}

// DefaultMaxReplicas is the largest number of replicas of one job where nothing else is set.
const DefaultMaxReplicas = 10_000

// DefaultClusterDomain is the DNS domain of a cluster where nothing else is known.
const DefaultClusterDomain = "cluster.local"

func (l Limits) withDefaults() Limits {
	if l.MaxReplicas == 0 {
		l.MaxReplicas = DefaultMaxReplicas
	}
	return l
}

// owns tells whether an object is one of this kind, and one at all.
func (k Kind) owns(o Object) bool {
	v := reflect.ValueOf(o)
	return v.IsValid() && v.Type() == reflect.TypeOf(k.New()) && !v.IsNil()
}

func (k Kind) wrongType(o Object) field.ErrorList {
	return field.ErrorList{field.InternalError(nil, fmt.Errorf("%T is not a %s", o, k.Name))}
}

// ByName finds a kind by its name, for example "GenericJob".
func ByName(name string) (Kind, error) {
	for _, k := range All {
		if k.Name == name {
			return k, nil
		}
	}
	return Kind{}, fmt.Errorf("%q is no kind of job in %s", name, batch.GroupVersion)
}

func seconds(s *int32) *time.Duration {
	if s == nil {
		return nil
	}
	d := time.Duration(*s) * time.Second
	return &d
}
