// Package engine decides what happens to a job. Next is a pure function of the job, its observations (including the
// current time) and settings. It returns what to write, delete and create. The package does no I/O and does not depend
// on the kind of a job, because package kinds converts every kind to the type Job.
//
// Start reading at Next.
package engine

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// Job is the kind-independent form of a job.
type Job struct {
	// APIVersion and Kind identify the converted object. Owner references carry them.
	APIVersion, Kind string
	Namespace, Name  string
	UID              types.UID
	Generation       int64
	// Invalid is the validation error of the job; empty if the job is valid. The engine fails an invalid job
	// immediately, with one exception: it continues a job that has started, if the job has roles and at most
	// maxInvalidReplicas replicas. Such a job may have become invalid because a limit was lowered or a newer release
	// is stricter.
	Invalid string
	// Deleting is true if the job has a deletion timestamp. The engine then plans nothing.
	Deleting bool

	// Roles lists the roles in the order of replicaSpecs. It is empty if the job cannot be interpreted.
	Roles []Role
	// Success and Failure are the finish rules. Without success rules, the job succeeds when every replica has
	// succeeded. Without any rules, the job fails when a replica has failed for good. A job fails in any case if none
	// of its success rules can hold any more.
	Success, Failure []Rule
	// Pause and Debug are the switches of the run mode. Pause takes precedence.
	Pause, Debug bool
	// CleanUp selects the pods to delete when the job has finished.
	CleanUp batch.CleanUpPolicy
	// TTL is the time from the end of the job to its deletion; nil means never.
	TTL *time.Duration
	// Deadline bounds the time for which the job may be active, counted from status.startTime; nil means no bound. A
	// job that exceeds it fails, and its pods that have not ended are deleted.
	Deadline *time.Duration
	// RestartLimit is the largest number of charged incidents; nil means no bound. A failure that would exceed the
	// limit fails the job.
	RestartLimit *int32
	// Collective is true if no replica can continue without the others. Such a job fails once a replica has failed for
	// good, unless a finish rule decides within a minute.
	Collective bool
	// Elastic allows the number of replicas to change while the job runs; nil means that the number is fixed.
	Elastic *Elastic
	// Rendezvous is the address at which the replicas find each other; nil if they need none. The engine does not use
	// it; the command line and the console show it.
	Rendezvous *Rendezvous
	// Service describes the headless Service with the job's name; nil means that the job has none.
	Service *Service
	// Gang makes the t9k-scheduler schedule the pods as one group; nil leaves them to the default scheduler.
	Gang *Gang
	// RequestedBy is the value of the job's annotation scheduling.AnnotationRequestedBy: the user who requested the
	// queue and the user's groups, as a JSON list. The job's PodGroup carries it too.
	RequestedBy string
	// ClusterDomain is the DNS domain of the cluster, for example "cluster.local".
	ClusterDomain string
}

// Rendezvous is an address at which processes find each other.
type Rendezvous struct {
	// Endpoint is HOST:PORT. Backend is the name of the protocol, for example "c10d".
	Endpoint, Backend string
}

// Role is a set of replicas that share a template.
type Role struct {
	Type     string
	Replicas int
	Restart  Restart
	// Template is the template of the pods. It is shared with the converted object and must not be modified.
	Template *corev1.PodTemplateSpec
	// PodSize is an upper bound of the memory that one pod object takes in the operator, in bytes.
	PodSize int
	// Main is the index of the main container in Template.Spec.Containers.
	Main int
	// MainDecides is true if the end of the main container is the end of the replica. The pod's other containers are
	// then stopped, and their exit codes do not count. If it is false, the replica ends when all containers have ended.
	MainDecides bool
	// Expand completes the pod of one rank: variables, environment, command lines. It may modify spec, which is a copy.
	// The commands of the run mode are already in spec, so that Expand completes them too. Nil means that there is
	// nothing to complete.
	Expand func(rank int, spec *corev1.PodSpec)
	// Debug configures the role's pods in debug mode.
	Debug Debug
	// Resume configures the role's pods once the job has resumed from a pause.
	Resume Resume
}

// Debug configures the pods of a role in debug mode.
type Debug struct {
	// SkipInitContainers removes the init containers.
	SkipInitContainers bool
	// Command replaces the command of every container. Debug mode drops the containers' args.
	Command []string
}

// Resume configures the pods of a role after a pause.
type Resume struct {
	// SkipInitContainers removes the init containers.
	SkipInitContainers bool
	// Command and Args replace those of the main container; nil leaves them as they are.
	Command, Args []string
}

// Restart is the restart policy of a replica.
type Restart struct {
	// OnSuccess and OnFailure select the ends after which a replica restarts.
	OnSuccess, OnFailure bool
	// RestartCodes lists exit codes that lead to a restart, and FailCodes exit codes that do not. Both override
	// OnFailure. FailCodes takes precedence over RestartCodes.
	RestartCodes, FailCodes []CodeRange
	// Limit is the largest number of restarts charged to each replica; nil means no bound.
	Limit *int32
	// All makes a failure, or a disruption of a pod that ran, restart not only this replica but every replica of the
	// job that has not ended for good and whose policy restarts at all.
	All bool
}

// CodeRange is a range of exit codes, both ends included.
type CodeRange struct{ First, Last int32 }

// afterFailure reports whether the policy restarts a replica that failed with an exit code; nil means that the code is
// unknown.
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

// Elastic describes a job whose number of replicas may change at any time until a replica has succeeded.
type Elastic struct {
	// Min is the number of replicas that the job needs to run. Max is the largest number of replicas that it may have.
	Min, Max int
}

// Rule is a finish rule. A success rule holds when all replicas that it names have succeeded, and a failure rule when
// all of them have failed for good.
type Rule struct {
	// Text is the rule as JSON, for messages.
	Text string
	// Members lists the replicas, each once.
	Members []Member
}

// Member identifies one replica by the index of its role in Job.Roles and its rank.
type Member struct{ Role, Rank int }

// Service describes the job's headless Service.
type Service struct {
	Ports []corev1.ServicePort
}

// Gang describes the job's PodGroup.
type Gang struct {
	// Queue and Priority are copied to the PodGroup. MinMember is the PodGroup's minimum, from which pass.group
	// subtracts the replicas that have ended for good and have no pod.
	Queue     string
	Priority  int32
	MinMember int32
	// ByRole gives each role its own minimum: the number of its replicas.
	ByRole bool
}

// PodName returns the name of a replica's pod, which is also its hostname.
func (j *Job) PodName(role string, rank int) string {
	return ReplicaName(j.Name, role, rank)
}

// mainContainer returns the name of the main container; empty if there is none.
func (r *Role) mainContainer() string {
	if r.Main >= len(r.Template.Spec.Containers) {
		return ""
	}
	return r.Template.Spec.Containers[r.Main].Name
}

// Bare returns a job with only the fields that are needed to end and clean up a job that cannot be interpreted.
func (j *Job) Bare() *Job {
	return &Job{APIVersion: j.APIVersion, Kind: j.Kind, Namespace: j.Namespace, Name: j.Name, UID: j.UID, Generation: j.Generation,
		Deleting: j.Deleting, CleanUp: j.CleanUp, TTL: j.TTL, ClusterDomain: j.ClusterDomain, Invalid: j.Invalid}
}

// Replicas returns the number of replicas that the job wants, over all roles.
func (j *Job) Replicas() int {
	n := 0
	for i := range j.Roles {
		n += j.Roles[i].Replicas
	}
	return n
}
