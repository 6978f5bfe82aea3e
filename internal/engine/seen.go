package engine

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// Seen is what has been observed of a job, possibly late. Next never modifies it.
type Seen struct {
	// Now is the time of the observation.
	Now time.Time
	// Status as last read from the API server.
	Status *batch.JobStatus
	// LastWrite is the time of the last status write or, before the first one, of the first sight of the job; zero where
	// unknown.
	LastWrite time.Time
	// Unwritten tells that an empty Status is beyond doubt the newest: the job was read in a version from a time when nobody
	// but the observer writes statuses, and the observer has not tried to write this one.
	Unwritten bool
	// Pods whose controller is the job, in any order.
	Pods []*corev1.Pod
	// Succeeded holds, by UID, pods that have succeeded and were deleted only then, as the observer has watched it happen, each as it
	// was before. What is seen of them since need not tell: see finishedBeforeDeletion.
	Succeeded map[types.UID]*corev1.Pod
	// Live is true where Pods were read from the API server itself at Now, and not from a cache.
	Live bool
	// ContestedSince is the time of the first of the passes in a row, this one excluded, whose plans were Contested; zero
	// where the last one was not.
	ContestedSince time.Time
	// Service tells that the job's Service exists.
	Service bool
	// Group is the job's PodGroup; nil where it does not exist.
	Group *scheduling.PodGroup
	// LostNodes names the nodes that are gone or not ready, among those of pods that have been ending for too long.
	LostNodes map[string]bool
	// Warning is what was last warned of about a pod whose start is overdue, see StartOverdue; nil where nothing is known.
	Warning *Warning
	// Refusals lists what the API server refused to create since something was last created.
	Refusals []Refusal
}

// Warning is what the kubelet says in an event, and nowhere else, of a pod that does not start.
type Warning struct {
	// Pod is the name of the pod.
	Pod string
	// Message is the kubelet's.
	Message string
}

// Refusal is an object of the job that could not be created.
type Refusal struct {
	// Object names it for people, for example `pod "mnist-worker-0"`.
	Object string
	// Reason is ReasonNameTaken or ReasonCreateRefused.
	Reason batch.Reason
	// Message says why, in the API server's words where it has any.
	Message string
}

// Config holds the engine's settings. The zero value of a field stands for its default.
type Config struct {
	// ForceDeleteAfter is how long a pod on a lost node may take to end before it is deleted by force. Default 5 min.
	ForceDeleteAfter time.Duration
	// BackoffBase is the delay before the second replacement in a row; it doubles with each further one. Default 10 s.
	BackoffBase time.Duration
	// BackoffMax bounds the delay. Default 5 min.
	BackoffMax time.Duration
	// BackoffReset is the running time after which a replica counts as healthy again. Default 10 min.
	BackoffReset time.Duration
	// MaxListed is the number of replicas that a status lists one by one. Default 1,000.
	MaxListed int
	// Coalesce is the least time between two status writes of a small job that tell of nothing but replica phases; for each
	// 400 replicas it grows by as much again. Default 1 s.
	Coalesce time.Duration
}

// WithDefaults fills unset fields with their defaults.
func (c Config) WithDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.ForceDeleteAfter, 5*time.Minute)
	def(&c.BackoffBase, 10*time.Second)
	def(&c.BackoffMax, 5*time.Minute)
	def(&c.BackoffReset, 10*time.Minute)
	def(&c.Coalesce, time.Second)
	if c.MaxListed == 0 {
		c.MaxListed = 1000
	}
	return c
}
