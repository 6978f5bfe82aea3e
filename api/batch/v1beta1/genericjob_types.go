package v1beta1

// The rules in CEL are for clusters without webhooks; the controller checks the same and more. They cost the API server
// little: rules for new jobs begin with oldSelf.hasValue(), and rules that compare a job with its old state first
// recognise a write of the status, which never changes the spec. Comparing pod templates takes milliseconds. The rules
// that all kinds of job have, on names, roles and immutable fields, are in internal/kinds/schema.go. The rules check
// only the first and the last entry of a list of ranks: the API server estimates the cost from the longest lists
// allowed, and would refuse more.

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// GenericJob runs a set of replicas, in one or several roles, as one job.
//
// The name of a pod is JOB-ROLE-RANK. It has at most 63 characters and no dot. On a live job, only the enabled
// switches, the clean-up policy, the time to live, limits of restarts and the priority can change.
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

// FinishRule maps a role to ranks. An entry is a rank (3 or "3") or an inclusive range ("0-3"); an empty list means
// every replica of the role.
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
	// SuccessRules says when the job succeeds: when all replicas that one of the rules names have succeeded. Without
	// rules, the job succeeds when every replica has succeeded.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	SuccessRules []FinishRule `json:"successRules,omitempty"`
	// FailureRules says when the job fails: when all replicas that one of the rules names have failed for good, which
	// means that no restart is left or allowed. A job without any rules fails when any replica has failed for good. A
	// job with success rules also fails when none of them can hold any more. If a failure rule and a success rule hold
	// at the same time, the job fails.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	FailureRules []FinishRule `json:"failureRules,omitempty"`
	// Service gives the job a headless Service with these ports, through which the replicas have names in DNS. Unset:
	// the job has no Service.
	// +optional
	Service *ServiceOption `json:"service,omitempty"`
	// RunMode chooses between running at once (the default), debugging and pausing.
	// +optional
	RunMode *RunMode `json:"runMode,omitempty"`
	// CleanUpPolicy says which pods are deleted when the job has finished: None (the default), Unfinished (those that
	// are pending, running or unknown) or All.
	// +optional
	CleanUpPolicy CleanUpPolicy `json:"cleanUpPolicy,omitempty"`
	// TTLSecondsAfterFinished deletes the job itself this many seconds after it has finished. Unset: never.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
	// Scheduler chooses the scheduler. Unset: the cluster's default scheduler.
	// +optional
	Scheduler *SchedulePolicy `json:"scheduler,omitempty"`
	// ReplicaSpecs lists the roles of the job.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	ReplicaSpecs []ReplicaSpec `json:"replicaSpecs"`
}

// ReplicaSpec describes the replicas of one role.
type ReplicaSpec struct {
	// Type is the role: a lower-case DNS label, unique in the job.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Type string `json:"type"`
	// Replicas is the number of replicas. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
	// RestartPolicy says when a replica is restarted.
	// +optional
	RestartPolicy *RestartPolicy `json:"restartPolicy,omitempty"`
	// Template describes the pods. Its restartPolicy is ignored: the controller restarts replicas by replacing their
	// pods.
	Template corev1.PodTemplateSpec `json:"template"`
}

// RestartPolicy says when the replicas of a role are restarted.
type RestartPolicy struct {
	// Policy is OnFailure (the default), Always (also after success) or Never.
	// +optional
	Policy RestartPolicyType `json:"policy,omitempty"`
	// Limit is the number of restarts of each replica. It may change on a live job. Unset: 0 for OnFailure, no bound
	// for Always.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Limit *int32 `json:"limit,omitempty"`
	// Scope says which replicas restart when one of this role fails. Replica (the default): only that one. Job: all
	// replicas of the job that have not ended for good, except those of roles that never restart. With Job, limit
	// counts the incidents that a replica began. The eviction of a running replica then restarts the others too,
	// without charge.
	// +optional
	Scope RestartScope `json:"scope,omitempty"`
	// ExitCodes decides by the exit code of a failed replica. It takes precedence over policy. If several containers
	// failed, the code of the first one counts.
	// +optional
	ExitCodes *ExitCodes `json:"exitCodes,omitempty"`
}

// ExitCodes lists the exit codes after which a failed replica restarts or has failed for good. The policy decides about
// a code in neither list.
//
// +kubebuilder:validation:XValidation:rule="[has(self.restart) ? self.restart : [], has(self.fail) ? self.fail : []].all(l, l.all(c, type(c) == int ? c >= 1 && c <= 255 : !c.matches('^[0-9]{1,3}(-[0-9]{1,3})?$') || c.split('-').all(n, int(n) >= 1 && int(n) <= 255) && int(c.split('-')[0]) <= int(c.split('-')[size(c.split('-')) - 1])))",message="not a range of exit codes: write codes from 1 to 255, and ranges upwards, such as \"128-255\""
type ExitCodes struct {
	// Restart lists codes after which the replica restarts, as often as limit allows.
	// +optional
	Restart CodeList `json:"restart,omitempty"`
	// Fail lists codes after which the replica has failed for good.
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

// RestartPolicyType is a restart policy of GenericJob.
//
// +kubebuilder:validation:Enum=Always;OnFailure;Never
type RestartPolicyType string

const (
	// RestartAlways restarts a replica whenever it ends.
	RestartAlways RestartPolicyType = "Always"
	// RestartOnFailure restarts a replica when it fails.
	RestartOnFailure RestartPolicyType = "OnFailure"
	// RestartNever never restarts a replica.
	RestartNever RestartPolicyType = "Never"
)

// GenericJobStatus is the observed state of a GenericJob.
type GenericJobStatus struct {
	JobStatus `json:",inline"`
}
