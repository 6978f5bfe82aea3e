package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// GenericJob runs a set of replicas, in one or several roles, as one job.
//
// +kubebuilder:object:root=true
// +genclient
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=all;jobs,shortName=gj
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.aggregate.running`,description="Replicas that run"
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.replicas`,description="Replicas that the job wants"
// +kubebuilder:printcolumn:name="Restarts",type=integer,JSONPath=`.status.backoffCount`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Queue",type=string,priority=1,JSONPath=`.spec.scheduler.t9kScheduler.queue`
// +kubebuilder:printcolumn:name="Started",type=date,priority=1,JSONPath=`.status.startTime`
// +kubebuilder:printcolumn:name="Finished",type=date,priority=1,JSONPath=`.status.completionTime`
// +kubebuilder:validation:XValidation:rule="!self.metadata.name.contains('.')",fieldPath=".metadata",message="a job's name begins the host names of its pods: use '-' in place of '.'"
// +kubebuilder:validation:XValidation:rule="self.spec.replicaSpecs.all(r, r.replicas == 0 || size('%s-%s-%s'.format([self.metadata.name, r.type, string(r.replicas - 1)])) <= 63)",fieldPath=".metadata",message="a pod's name, JOB-ROLE-RANK, has at most 63 characters: shorten the name of the job or of the role",messageExpression="'the pod %s would have a name of %s characters, and the limit is 63: shorten the name of the job or of the role by %s'.format(self.spec.replicaSpecs.filter(r, r.replicas > 0).map(r, '%s-%s-%s'.format([self.metadata.name, r.type, string(r.replicas - 1)])).filter(n, size(n) > 63).map(n, [n, string(size(n)), string(size(n) - 63)])[0])"
type GenericJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what is to run.
	Spec GenericJobSpec `json:"spec"`
	// Status says what has been seen of it.
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

// FinishRule maps a role to ranks. An entry is a rank (3 or "3") or an inclusive range ("0-3"); an empty list stands for
// every replica of the role.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=64
type FinishRule map[string]RankList

// Of each list CEL looks at the first and the last entry, as the cost of more would exceed what the API server allows for a
// CRD. The controller looks at all of them.

// RankList lists ranks: integers, strings that hold one, or inclusive ranges such as "0-3".
//
// +listType=atomic
// +kubebuilder:validation:MaxItems=10000
// +kubebuilder:validation:items:XIntOrString
// +kubebuilder:validation:items:Pattern=`^[0-9]{1,7}(-[0-9]{1,7})?$`
// +kubebuilder:validation:items:MaxLength=15
// +kubebuilder:validation:XValidation:rule="size(self) == 0 || [0, size(self) - 1].all(i, type(self[i]) in [int] ? self[i] >= 0 : !self[i].contains('-') || int(self[i].split('-')[0]) <= int(self[i].split('-')[1]))",message="ranks count from 0, and ranges run upwards: write 0 or more, or a range such as \"0-3\""
type RankList []intstr.IntOrString

// GenericJobSpec says what a GenericJob runs.
//
// +kubebuilder:validation:XValidation:rule="!has(self.successRules) || self.successRules.all(r, size(self.replicaSpecs.filter(s, s.type in r)) == size(r))",fieldPath=".successRules",message="a rule names a role that the job does not have: use roles of replicaSpecs",messageExpression="'a rule names a role that the job does not have: use roles of replicaSpecs, which are %s'.format([self.replicaSpecs.map(s, s.type)])"
// +kubebuilder:validation:XValidation:rule="!has(self.successRules) || self.successRules.all(r, self.replicaSpecs.all(s, !(s.type in r) || size(r[s.type]) == 0 || [0, size(r[s.type]) - 1].all(i, type(r[s.type][i]) in [int] ? r[s.type][i] < s.replicas : r[s.type][i].split('-', 2).all(n, int(n) < s.replicas))))",fieldPath=".successRules",message="a rank is out of range: the ranks of a role run from 0 to one less than its replicas",messageExpression="'a rank is out of range: the ranks of a role run from 0 to one less than its replicas, and %s have %s'.format([self.replicaSpecs.map(s, s.type), self.replicaSpecs.map(s, s.replicas)])"
// +kubebuilder:validation:XValidation:rule="(has(self.successRules) ? self.successRules : []) == (has(oldSelf.successRules) ? oldSelf.successRules : [])",fieldPath=".successRules",message="cannot change on a live job: create a new job"
// +kubebuilder:validation:XValidation:rule="!has(self.failureRules) || self.failureRules.all(r, size(self.replicaSpecs.filter(s, s.type in r)) == size(r))",fieldPath=".failureRules",message="a rule names a role that the job does not have: use roles of replicaSpecs",messageExpression="'a rule names a role that the job does not have: use roles of replicaSpecs, which are %s'.format([self.replicaSpecs.map(s, s.type)])"
// +kubebuilder:validation:XValidation:rule="!has(self.failureRules) || self.failureRules.all(r, self.replicaSpecs.all(s, !(s.type in r) || size(r[s.type]) == 0 || [0, size(r[s.type]) - 1].all(i, type(r[s.type][i]) in [int] ? r[s.type][i] < s.replicas : r[s.type][i].split('-', 2).all(n, int(n) < s.replicas))))",fieldPath=".failureRules",message="a rank is out of range: the ranks of a role run from 0 to one less than its replicas",messageExpression="'a rank is out of range: the ranks of a role run from 0 to one less than its replicas, and %s have %s'.format([self.replicaSpecs.map(s, s.type), self.replicaSpecs.map(s, s.replicas)])"
// +kubebuilder:validation:XValidation:rule="(has(self.failureRules) ? self.failureRules : []) == (has(oldSelf.failureRules) ? oldSelf.failureRules : [])",fieldPath=".failureRules",message="cannot change on a live job: create a new job"
// +kubebuilder:validation:XValidation:rule="has(self.service) == has(oldSelf.service) && (!has(self.service) || self.service == oldSelf.service)",fieldPath=".service",message="cannot change on a live job: create a new job"
// +kubebuilder:validation:XValidation:rule="(has(self.runMode) && has(self.runMode.debug) && has(self.runMode.debug.replicaSpecs) ? self.runMode.debug.replicaSpecs : []).all(m, self.replicaSpecs.exists(s, s.type == m.type))",fieldPath=".runMode",message="debug.replicaSpecs names a role that the job does not have: use roles of spec.replicaSpecs",messageExpression="'debug.replicaSpecs names a role that the job does not have: use roles of spec.replicaSpecs, which are %s'.format([self.replicaSpecs.map(s, s.type)])"
// +kubebuilder:validation:XValidation:rule="(has(self.runMode) && has(self.runMode.debug) && has(self.runMode.debug.replicaSpecs) ? self.runMode.debug.replicaSpecs : []) == (has(oldSelf.runMode) && has(oldSelf.runMode.debug) && has(oldSelf.runMode.debug.replicaSpecs) ? oldSelf.runMode.debug.replicaSpecs : [])",fieldPath=".runMode",message="debug.replicaSpecs cannot change on a live job: create a new job"
// +kubebuilder:validation:XValidation:rule="(has(self.runMode) && has(self.runMode.pause) && has(self.runMode.pause.resumeSpecs) ? self.runMode.pause.resumeSpecs : []).all(m, self.replicaSpecs.exists(s, s.type == m.type))",fieldPath=".runMode",message="pause.resumeSpecs names a role that the job does not have: use roles of spec.replicaSpecs",messageExpression="'pause.resumeSpecs names a role that the job does not have: use roles of spec.replicaSpecs, which are %s'.format([self.replicaSpecs.map(s, s.type)])"
// +kubebuilder:validation:XValidation:rule="(has(self.runMode) && has(self.runMode.pause) && has(self.runMode.pause.resumeSpecs) ? self.runMode.pause.resumeSpecs : []) == (has(oldSelf.runMode) && has(oldSelf.runMode.pause) && has(oldSelf.runMode.pause.resumeSpecs) ? oldSelf.runMode.pause.resumeSpecs : [])",fieldPath=".runMode",message="pause.resumeSpecs cannot change on a live job: create a new job"
// +kubebuilder:validation:XValidation:rule="(has(self.scheduler) && has(self.scheduler.t9kScheduler) ? self.scheduler.t9kScheduler.queue : '-') == (has(oldSelf.scheduler) && has(oldSelf.scheduler.t9kScheduler) ? oldSelf.scheduler.t9kScheduler.queue : '-')",fieldPath=".scheduler",message="the scheduler and its queue cannot change on a live job: create a new job"
// +kubebuilder:validation:XValidation:rule="self.replicaSpecs.map(s, s.type) == oldSelf.replicaSpecs.map(s, s.type)",fieldPath=".replicaSpecs",message="roles cannot be added, removed, renamed or reordered on a live job: create a new job"
// +kubebuilder:validation:XValidation:rule="self.replicaSpecs.exists(s, s.replicas > 0)",fieldPath=".replicaSpecs",message="a job has at least one replica: give one of the roles replicas of 1 or more"
type GenericJobSpec struct {
	// SuccessRules say when the job has succeeded: when all replicas that one of the rules names have succeeded. Without
	// rules the job succeeds when every replica has.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	SuccessRules []FinishRule `json:"successRules,omitempty"`
	// FailureRules say when the job has failed: when all replicas that one of the rules names have failed for good, that
	// is, with no restart left or allowed. Without rules the job fails when any replica has. When a failure rule and a
	// success rule come to hold together, the job has failed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	FailureRules []FinishRule `json:"failureRules,omitempty"`
	// Service gives the replicas names of their own in DNS and a headless Service with these ports. Unset: none.
	// +optional
	Service *ServiceOption `json:"service,omitempty"`
	// RunMode chooses between running at once (the default), debugging and pausing.
	// +optional
	RunMode *RunMode `json:"runMode,omitempty"`
	// CleanUpPolicy says which pods are deleted when the job has finished: None (the default), Unfinished (those that are
	// pending, running or unknown) or All.
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
	// +kubebuilder:validation:MaxItems=64
	ReplicaSpecs []ReplicaSpec `json:"replicaSpecs"`
}

// ReplicaSpec describes the replicas of one role.
//
// +kubebuilder:validation:XValidation:rule="has(self.template.spec) && size(self.template.spec.containers) > 0",fieldPath=".template",message="a pod has at least one container: add one with name, image and command"
// +kubebuilder:validation:XValidation:rule="!has(self.template.spec) || size(self.template.spec.containers) == 0 || has(self.template.spec.containers[0].image) && size(self.template.spec.containers[0].image) > 0",fieldPath=".template",message="name the image that the container runs"
// +kubebuilder:validation:XValidation:rule="self.replicas == oldSelf.replicas",fieldPath=".replicas",message="cannot change on a live job: create a new job"
// +kubebuilder:validation:XValidation:rule="(has(self.restartPolicy) && has(self.restartPolicy.policy) ? self.restartPolicy.policy : 'OnFailure') == (has(oldSelf.restartPolicy) && has(oldSelf.restartPolicy.policy) ? oldSelf.restartPolicy.policy : 'OnFailure')",fieldPath=".restartPolicy",message="policy cannot change on a live job: create a new job"
// +kubebuilder:validation:XValidation:rule="self.template == oldSelf.template",fieldPath=".template",message="cannot change on a live job: create a new job"
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
	// Template describes the pods. Its restartPolicy is ignored: the controller restarts replicas by replacing their pods.
	Template corev1.PodTemplateSpec `json:"template"`
}

// RestartPolicy says when the replicas of a role are restarted.
type RestartPolicy struct {
	// Policy is OnFailure (the default), Always (successes too) or Never.
	// +optional
	Policy RestartPolicyType `json:"policy,omitempty"`
	// Limit is the number of restarts of each replica. It may change on a live job. Unset: 0 for OnFailure, no bound for
	// Always.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Limit *int32 `json:"limit,omitempty"`
}

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
