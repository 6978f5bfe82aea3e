// Package kinds lowers every kind of job to the engine's normal form. A kind is one file with its lowering and one line in
// All; it holds no behaviour of its own. The package is pure.
package kinds

import (
	"fmt"
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
	// lower turns an object into the normal form and notes all that is wrong with it; nil for an object of another type.
	lower func(Object, Options) *lowering
	// ValidateUpdate lists the changes that a live job does not take.
	ValidateUpdate func(updated, old Object) field.ErrorList
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

// Options are what lowering needs to know of the cluster and the installation.
type Options struct {
	// ClusterDomain is the DNS domain of the cluster. Defaults to "cluster.local".
	ClusterDomain string
	// MaxReplicas is the largest number of replicas of one job. Defaults to 10,000.
	MaxReplicas int
}

// DefaultMaxReplicas is the largest number of replicas of one job where nothing else is set.
const DefaultMaxReplicas = 10_000

// DefaultClusterDomain is the DNS domain of a cluster where nothing else is known.
const DefaultClusterDomain = "cluster.local"

func (o Options) withDefaults() Options {
	if o.ClusterDomain == "" {
		o.ClusterDomain = DefaultClusterDomain
	}
	if o.MaxReplicas == 0 {
		o.MaxReplicas = DefaultMaxReplicas
	}
	return o
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
