// Package engine decides what happens to a job. It is pure: Next is a function of the job, of what has been seen of it and
// of the clock, and says what to write, delete and create. Every kind of job is converted to the normal form Job first, so
// this package knows no kinds.
package engine

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// Job is the normal form of a job of any kind.
type Job struct {
	// APIVersion and Kind identify the object that was converted; owner references carry them.
	APIVersion, Kind string
	Namespace, Name  string
	UID              types.UID
	Generation       int64
	// Invalid says what is wrong with the job; empty where nothing is. A job that has begun is carried on whatever is wrong with
	// it by now, if sense can be made of it: a limit may have been lowered, or a release be stricter. Any other one fails at once.
	Invalid string
	// Deleting is true once somebody has asked to delete the job: nothing is created any more.
	Deleting bool

	// Roles in the order of replicaSpecs. A job of which no sense can be made has none.
	Roles []Role
	// Success and Failure rules. Without success rules the job succeeds when every replica has; without rules of either sort it
	// fails when any replica has failed for good. A job whose success rules can hold no more fails in any case.
	Success, Failure []Rule
	// Pause and Debug are the run mode's switches; Pause wins.
	Pause, Debug bool
	// CleanUp says which pods go when the job has finished.
	CleanUp batch.CleanUpPolicy
	// TTL is the time from the end of the job to its deletion; nil stands for never.
	TTL *time.Duration
	// Deadline is how long the job may be active, counted from status.startTime; nil stands for no bound. A job that passes
	// it fails, and its running pods are stopped.
	Deadline *time.Duration
	// RestartLimit is the number of charged incidents; nil stands for no bound. A failure that would be charged beyond it fails
	// the job.
	RestartLimit *int32
	// Collective tells that the replicas form one group that cannot go on without any of them: one that failed for good fails
	// the job unless a finish rule decides within a minute.
	Collective bool
	// Elastic lets the number of replicas change while the job runs; nil stands for a fixed one.
	Elastic *Elastic
	// Service asks for a headless Service of the job's name; nil stands for none.
	Service *Service
	// Gang hands the pods to the t9k-scheduler as one group; nil leaves them to the default scheduler.
	Gang *Gang
	// RequestedBy tells who asked for the queue, as scheduling.AnnotationRequestedBy does. The job's PodGroup says the same.
	RequestedBy string
	// ClusterDomain is the DNS domain of the cluster, for example "cluster.local".
	ClusterDomain string
}

// Role is a set of replicas that share a template.
type Role struct {
	Type     string
	Replicas int
	Restart  Restart
	// Template of the pods. It is shared with the converted object and never modified.
	Template *corev1.PodTemplateSpec
	// PodSize is an upper bound of the memory that one of the pods takes, in bytes.
	PodSize int
	// Main is the index of the main container in Template.Spec.Containers.
	Main int
	// MainDecides makes the end of the main container the end of the replica. Whatever else runs in the pod is then stopped,
	// and neither its exit codes nor its running on count. Otherwise the replica ends when all containers have.
	MainDecides bool
	// Expand completes the pod of one rank: variables, environment, command lines. It may modify spec, which is a copy in
	// which the run mode's commands are already in place, so that they are completed too. Nil where there is nothing to do.
	Expand func(rank int, spec *corev1.PodSpec)
	// Debug says how the role's pods start in debug mode.
	Debug Debug
	// Resume says how they start once the job has resumed from a pause.
	Resume Resume
}

// Debug says how the pods of a role start in debug mode.
type Debug struct {
	SkipInitContainers bool
	// Command replaces that of every container; their args are dropped.
	Command []string
}

// Resume says how the pods of a role start after a pause.
type Resume struct {
	SkipInitContainers bool
	// Command and Args replace those of the main container, each where not nil.
	Command, Args []string
}

// Restart says when a replica is restarted.
type Restart struct {
	// OnSuccess and OnFailure tell which ends lead to a restart.
	OnSuccess, OnFailure bool
	// RestartCodes and FailCodes list exit codes of failures that lead to a restart, and that do not, whatever OnFailure says.
	RestartCodes, FailCodes []CodeRange
	// Limit is the number of restarts of each replica; nil stands for no bound.
	Limit *int32
	// All makes a failure restart every replica of the job that has not ended for good, in place of the one that failed.
	All bool
}

// CodeRange is a range of exit codes, both ends included.
type CodeRange struct{ First, Last int32 }

// afterFailure tells whether the policy restarts a replica that failed with an exit code; nil stands for an unknown one.
func (x *Restart) afterFailure(code *int32) bool {
	switch {
	case code == nil:
		return x.OnFailure
	case includes(x.FailCodes, *code):
		return false
	case includes(x.RestartCodes, *code):
		return true
	default:
		return x.OnFailure
	}
}

func includes(ranges []CodeRange, code int32) bool {
	return slices.ContainsFunc(ranges, func(r CodeRange) bool { return r.First <= code && code <= r.Last })
}

// Elastic describes a job whose roles may get other numbers of replicas at any time. Once a replica has succeeded they stay
// as they are.
type Elastic struct {
	// Min is the number of replicas that the job needs to run; it does not wait for more. Max is the largest number that it
	// may be given.
	Min, Max int
}

// Rule names the replicas that all must have succeeded, or failed for good, for it to hold.
type Rule struct {
	// Text is the rule as JSON, for messages.
	Text string
	// Members lists the replicas, each once.
	Members []Member
}

// Member is one replica: the index of its role in Job.Roles, and its rank.
type Member struct{ Role, Rank int }

// Service describes the job's headless Service.
type Service struct {
	Ports []corev1.ServicePort
}

// Gang describes the job's PodGroup.
type Gang struct {
	Queue     string
	Priority  int32
	MinMember int32
	// ByRole gives each role a minimum of its own: all its replicas.
	ByRole bool
}

// PodName is the name and hostname of a replica's pod.
func (j *Job) PodName(role string, rank int) string {
	return ReplicaName(j.Name, role, rank)
}

// mainContainer is the name of the main container; empty where there is none.
func (r *Role) mainContainer() string {
	if r.Main >= len(r.Template.Spec.Containers) {
		return ""
	}
	return r.Template.Spec.Containers[r.Main].Name
}

// Bare is the job without its roles and whatever speaks of them. What is left suffices to end it.
func (j *Job) Bare() *Job {
	return &Job{APIVersion: j.APIVersion, Kind: j.Kind, Namespace: j.Namespace, Name: j.Name, UID: j.UID, Generation: j.Generation,
		Deleting: j.Deleting, CleanUp: j.CleanUp, TTL: j.TTL, ClusterDomain: j.ClusterDomain, Invalid: j.Invalid}
}

// Replicas is the number of replicas that the job wants, over all roles.
func (j *Job) Replicas() int {
	n := 0
	for i := range j.Roles {
		n += j.Roles[i].Replicas
	}
	return n
}
