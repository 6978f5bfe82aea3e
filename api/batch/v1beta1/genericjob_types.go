package v1beta1

// The CEL rules validate jobs even if no webhook runs. The operator checks the same and more. The rules cost the API
// server little: rules for new jobs begin with oldSelf.hasValue(), so that updates skip them, and rules that compare a
// job with its old state first detect a write of the status, which never changes the spec. Otherwise each status write
// would compare the pod templates, which takes milliseconds. internal/kinds/schema.go generates the rules that all
// kinds of job have, on names, roles and immutable fields. The rules check only the first and the last entry of a list
// of ranks, because the API server estimates the cost of a rule from the longest allowed lists and refuses a CRD whose
// rules are too expensive.

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// GenericJob runs a set of replicas, in one or several roles, as one job.
//
// The name of a pod is JOB-ROLE-RANK. It must be a DNS label: at most 63 characters and no dot. On a live job, only the
// enabled switches of runMode, cleanUpPolicy, ttlSecondsAfterFinished, restartPolicy.limit and
// scheduler.t9kScheduler.priority can change.
//
// +kubebuilder:object:root=true
// +genclient
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=all;jobs,shortName=gj
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.aggregate.running`,description="Replicas that run"
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.replicas`,description="Replicas that the job wants"
// +kubebuilder:printcolumn:name="Restarts",type=integer,JSONPath=`.status.restarts`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Queue",type=string,priority=1,JSONPath=`.spec.scheduler.t9kScheduler.queue`
// +kubebuilder:printcolumn:name="Started",type=date,priority=1,JSONPath=`.status.startTime`
// +kubebuilder:printcolumn:name="Finished",type=date,priority=1,JSONPath=`.status.completionTime`
type GenericJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what the job runs.
	Spec GenericJobSpec `json:"spec"`
	// Status is the observed state of the job.
	// +optional
	Status GenericJobStatus `json:"status,omitzero"`
}

// GenericJobList is a list of GenericJobs.
//
// +kubebuilder:object:root=true
type GenericJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GenericJob `json:"items"`
}

// FinishRule names replicas of a job: it maps roles to ranks. An entry is a rank (3 or "3") or an inclusive range
// ("0-3"). Ranks start at 0. An empty list means every replica of the role.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=32
type FinishRule map[string]RankList

// RankList lists ranks: integers, strings that hold one, or inclusive ranges such as "0-3".
//
// +listType=atomic
// +kubebuilder:validation:MaxItems=10000
// +kubebuilder:validation:items:XIntOrString
// +kubebuilder:validation:items:Pattern=`^[0-9]{1,7}(-[0-9]{1,7})?$`
// +kubebuilder:validation:items:MaxLength=15
type RankList []intstr.IntOrString

// GenericJobSpec says what a GenericJob runs.
//
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !has(self.successRules) || self.successRules.all(r, size(self.replicaSpecs.filter(s, s.type in r)) == size(r))",optionalOldSelf=true,fieldPath=".successRules",message="a rule names a role that the job does not have: use roles of replicaSpecs",messageExpression="'a rule names a role that the job does not have: use roles of replicaSpecs, which are %s'.format([self.replicaSpecs.map(s, s.type)])"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !has(self.successRules) || self.successRules.all(r, self.replicaSpecs.all(s, !(s.type in r) || size(r[s.type]) == 0 || [0, size(r[s.type]) - 1].all(i, type(r[s.type][i]) in [int] ? r[s.type][i] < s.replicas : r[s.type][i].split('-', 2).all(n, int(n) < s.replicas) || r[s.type][i].matches('[^0-9-]|^-|-$'))))",optionalOldSelf=true,fieldPath=".successRules",message="a rank is out of range: the ranks of a role run from 0 to one less than its replicas",messageExpression="'a rank is out of range: the ranks of a role run from 0 to one less than its replicas, and %s have %s'.format([self.replicaSpecs.map(s, s.type), self.replicaSpecs.map(s, s.replicas)])"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !has(self.successRules) || self.successRules.all(r, r.all(t, size(r[t]) == 0 || [0, size(r[t]) - 1].all(i, type(r[t][i]) in [int] ? r[t][i] >= 0 : !r[t][i].contains('-') || int(r[t][i].split('-')[0]) <= int(r[t][i].split('-')[1]) || r[t][i].matches('[^0-9-]|^-|-$'))))",optionalOldSelf=true,fieldPath=".successRules",message="ranks count from 0, and ranges run upwards: write 0 or more, or a range such as \"0-3\""
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !has(self.failureRules) || self.failureRules.all(r, size(self.replicaSpecs.filter(s, s.type in r)) == size(r))",optionalOldSelf=true,fieldPath=".failureRules",message="a rule names a role that the job does not have: use roles of replicaSpecs",messageExpression="'a rule names a role that the job does not have: use roles of replicaSpecs, which are %s'.format([self.replicaSpecs.map(s, s.type)])"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !has(self.failureRules) || self.failureRules.all(r, self.replicaSpecs.all(s, !(s.type in r) || size(r[s.type]) == 0 || [0, size(r[s.type]) - 1].all(i, type(r[s.type][i]) in [int] ? r[s.type][i] < s.replicas : r[s.type][i].split('-', 2).all(n, int(n) < s.replicas) || r[s.type][i].matches('[^0-9-]|^-|-$'))))",optionalOldSelf=true,fieldPath=".failureRules",message="a rank is out of range: the ranks of a role run from 0 to one less than its replicas",messageExpression="'a rank is out of range: the ranks of a role run from 0 to one less than its replicas, and %s have %s'.format([self.replicaSpecs.map(s, s.type), self.replicaSpecs.map(s, s.replicas)])"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !has(self.failureRules) || self.failureRules.all(r, r.all(t, size(r[t]) == 0 || [0, size(r[t]) - 1].all(i, type(r[t][i]) in [int] ? r[t][i] >= 0 : !r[t][i].contains('-') || int(r[t][i].split('-')[0]) <= int(r[t][i].split('-')[1]) || r[t][i].matches('[^0-9-]|^-|-$'))))",optionalOldSelf=true,fieldPath=".failureRules",message="ranks count from 0, and ranges run upwards: write 0 or more, or a range such as \"0-3\""
type GenericJobSpec struct {
	// SuccessRules lists rules by which the job succeeds. A rule holds when all replicas that it names have succeeded,
	// and the job succeeds when one rule holds. Unset or empty: the job succeeds when every replica has succeeded.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	SuccessRules []FinishRule `json:"successRules,omitempty"`
	// FailureRules lists rules by which the job fails. A rule holds when all replicas that it names have failed for
	// good, which means that no restart is left or allowed. The job fails when one rule holds. It also fails when it
	// cannot succeed any more: when no success rule can hold or, without success rules, when any replica has failed for
	// good. If a failure rule and a success rule hold within a second of each other, the job fails.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	FailureRules []FinishRule `json:"failureRules,omitempty"`
	// Service gives the job a headless Service with these ports. The replicas then have names in DNS. Unset: the job
	// has no Service. It cannot change on a live job.
	// +optional
	Service *ServiceOption `json:"service,omitempty"`
	// RunMode pauses the job or runs it in debug mode. Unset: neither.
	// +optional
	RunMode *RunMode `json:"runMode,omitempty"`
	// CleanUpPolicy says which pods are deleted when the job has finished: None (the default), Unfinished (the pods
	// that have not ended) or All. It may change on a live job.
	// +optional
	CleanUpPolicy CleanUpPolicy `json:"cleanUpPolicy,omitempty"`
	// TTLSecondsAfterFinished is the time in seconds from the end of the job to its deletion, with its pods. Unset: the
	// job is never deleted. It may change on a live job.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
	// Scheduler chooses the scheduler of the pods. Unset: the schedulerName of the template or, if that is unset too,
	// the cluster's default scheduler.
	// +optional
	Scheduler *SchedulePolicy `json:"scheduler,omitempty"`
	// ReplicaSpecs lists the roles of the job. Roles cannot be added, removed or reordered on a live job.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	ReplicaSpecs []ReplicaSpec `json:"replicaSpecs"`
}

// ReplicaSpec describes the replicas of one role.
type ReplicaSpec struct {
	// Type is the name of the role: a lower-case DNS label, unique in the job.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Type string `json:"type"`
	// Replicas is the number of replicas of the role. Defaults to 1. It cannot change on a live job.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
	// RestartPolicy says when a replica is restarted. Unset: never, which is policy OnFailure with limit 0. Only its
	// limit may change on a live job.
	// +optional
	RestartPolicy *RestartPolicy `json:"restartPolicy,omitempty"`
	// Template describes the pods. Its restartPolicy is ignored: the controller restarts replicas by replacing their
	// pods.
	Template corev1.PodTemplateSpec `json:"template"`
}

// RestartPolicy says when the replicas of a role are restarted.
type RestartPolicy struct {
	// Policy says after which ends a replica restarts: OnFailure (the default), Always (also after success) or Never.
	// exitCodes takes precedence over it.
	// +optional
	Policy RestartPolicyType `json:"policy,omitempty"`
	// Limit is the largest number of restarts of each replica. Unset: no limit for the policy Always, and 0 otherwise.
	// It may change on a live job.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Limit *int32 `json:"limit,omitempty"`
	// Scope says which replicas restart when a replica of this role fails. Replica (the default): only this replica.
	// Job: all replicas of the job, except replicas that have ended for good and replicas of roles that never restart.
	// With Job, limit is the largest number of incidents that one replica may begin. The eviction of a running replica
	// then restarts the others too, and no restart is counted.
	// +optional
	Scope RestartScope `json:"scope,omitempty"`
	// ExitCodes says by its exit code whether a failed replica restarts. It takes precedence over policy. If several
	// containers failed, the exit code of the first one in the pod's status counts.
	// +optional
	ExitCodes *ExitCodes `json:"exitCodes,omitempty"`
}

// ExitCodes lists the exit codes after which a failed replica restarts or has failed for good. The policy decides about
// a code in neither list. No code may be in both lists.
//
// +kubebuilder:validation:XValidation:rule="[has(self.restart) ? self.restart : [], has(self.fail) ? self.fail : []].all(l, l.all(c, type(c) == int ? c >= 1 && c <= 255 : !c.matches('^[0-9]{1,3}(-[0-9]{1,3})?$') || c.split('-').all(n, int(n) >= 1 && int(n) <= 255) && int(c.split('-')[0]) <= int(c.split('-')[size(c.split('-')) - 1])))",message="not a range of exit codes: write codes from 1 to 255, and ranges upwards, such as \"128-255\""
type ExitCodes struct {
	// Restart lists exit codes after which the replica restarts, as often as limit allows.
	// +optional
	Restart CodeList `json:"restart,omitempty"`
	// Fail lists exit codes after which the replica has failed for good.
	// +optional
	Fail CodeList `json:"fail,omitempty"`
}

// CodeList lists exit codes from 1 to 255: integers, strings that hold one, or inclusive ranges such as "128-255".
//
// +listType=atomic
// +kubebuilder:validation:MaxItems=64
// +kubebuilder:validation:items:XIntOrString
// +kubebuilder:validation:items:Pattern=`^[0-9]{1,3}(-[0-9]{1,3})?$`
// +kubebuilder:validation:items:MaxLength=7
type CodeList []intstr.IntOrString

// RestartPolicyType says after which ends a replica of a GenericJob restarts.
//
// +kubebuilder:validation:Enum=Always;OnFailure;Never
type RestartPolicyType string

const (
	// RestartAlways restarts a replica whenever it ends.
	RestartAlways RestartPolicyType = "Always"
	// RestartOnFailure restarts a replica when it fails. It is the default.
	RestartOnFailure RestartPolicyType = "OnFailure"
	// RestartNever restarts no replica, except after an exit code in exitCodes.restart.
	RestartNever RestartPolicyType = "Never"
)

// GenericJobStatus is the observed state of a GenericJob.
type GenericJobStatus struct {
	JobStatus `json:",inline"`
}
