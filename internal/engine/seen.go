package engine

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// Seen holds the observations of a job, which may be stale. Next does not modify it.
type Seen struct {
	// Now is the time of the observation.
	Now time.Time
	// Status is the status as last read from the API server.
	Status *batch.JobStatus
	// LastWrite is the time of the last status write or, before the first one, of the first observation of the job;
	// zero if unknown.
	LastWrite time.Time
	// Unwritten is true if an empty Status is certainly the newest: the observed version of the job dates from a time
	// since which only this observer writes statuses, and the observer has not tried to write one.
	Unwritten bool
	// Pods are the pods whose controller is the job, in any order.
	Pods []*corev1.Pod
	// Succeeded holds pods, by UID, that the observer saw succeed before they were deleted, each in its last state
	// before the deletion. Later states of these pods may not show the success (see finishedBeforeDeletion).
	Succeeded map[types.UID]*corev1.Pod
	// Unconfirmed holds the pods that Status lists as living or ending and that the observer has never seen: its cache
	// neither shows them nor has shown their deletion, and may be older than Status.
	Unconfirmed map[types.UID]bool
	// Live is true if Pods were read from the API server at Now, not from a cache.
	Live bool
	// ContestedSince is the time of the first of the preceding consecutive passes whose plans were Contested; zero if
	// the last plan was not.
	ContestedSince time.Time
	// LastPass is the Now of the observer's last call of Next for the job that did not return Plan.Refresh, and Ends is
	// the Plan.Ends of that call. Both are empty in the first call.
	LastPass time.Time
	Ends     map[types.UID]EndTime
	// Service is true if the job's Service exists.
	Service bool
	// Group is the job's PodGroup; nil if it does not exist.
	Group *scheduling.PodGroup
	// LostNodes contains the nodes that are deleted or not ready, among the nodes of pods whose deletion is overdue.
	LostNodes map[string]bool
	// Warning is the last warning event about a pod whose start is overdue (see StartOverdue); nil if there is none.
	Warning *Warning
	// Refusals lists objects of the job that could not be created. The observer clears it when all creations of a plan
	// succeed, and when a plan creates nothing or changes the run mode.
	Refusals []Refusal
}

// Warning is a warning event about a pod that does not start, for example from its kubelet. The pod's status does not
// contain it.
type Warning struct {
	// Pod is the name of the pod.
	Pod string
	// Message is the message of the event.
	Message string
}

// Refusal is an object of the job that could not be created.
type Refusal struct {
	// Object identifies the object for people, for example `pod "mnist-worker-0"`.
	Object string
	// Reason is ReasonNameTaken or ReasonCreateRefused.
	Reason batch.Reason
	// Message is the cause, from the API server if it gave one.
	Message string
}

// Config holds the engine's settings. The zero value of a field means its default.
type Config struct {
	// ForceDeleteAfter is how long a pod on a lost node may exist after its deletion timestamp before it is deleted by
	// force. Default 5 min.
	ForceDeleteAfter time.Duration
	// BackoffBase is the delay before the second consecutive replacement. The delay doubles with each further one.
	// Default 10 s.
	BackoffBase time.Duration
	// BackoffMax is the longest back-off delay. Default 5 min.
	BackoffMax time.Duration
	// BackoffReset is the running time after which a replica's back-off starts again from zero. Default 10 min.
	BackoffReset time.Duration
	// MaxListed is the largest number of replicas that a status lists one by one. Default 1,000.
	MaxListed int
	// Coalesce is the minimum time between two status writes that report nothing but replica phases. It grows by its
	// own value for every 400 replicas of the job. Default 1 s.
	Coalesce time.Duration
	// LogReadTime is the minimum time for which the pod of an ended replica remains after the end is seen, so that its
	// log can be read, before the pod is deleted for a restart or for clean-up. It is also the minimum TTL of the job.
	// Default 0.
	LogReadTime time.Duration
}

// WithDefaults returns the config with unset fields set to their defaults.
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
