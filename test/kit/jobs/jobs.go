// Package jobs reads the specs and statuses of jobs of any kind, and builds GenericJobs, for tests. It makes no
// requests. Start reading at KindOf.
package jobs

import (
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
)

// KindOf returns the kind of a job. It panics if the object is not a job.
func KindOf(j client.Object) kinds.Kind {
	for _, k := range kinds.All {
		if reflect.TypeOf(k.New()) == reflect.TypeOf(j) {
			return k
		}
	}
	panic(fmt.Sprintf("%T is not a job", j))
}

// StatusOf returns the status of a job.
func StatusOf(j client.Object) *batch.JobStatus { return KindOf(j).Status(j) }

// ListOf returns an empty list of jobs of a kind.
func ListOf(k kinds.Kind) client.ObjectList { return k.NewList().(client.ObjectList) }

// TrainingOf returns the part of the spec that all training jobs share, or nil for other jobs.
func TrainingOf(j client.Object) *batch.TrainingSpec {
	k := KindOf(j)
	if k.Training == nil {
		return nil
	}
	spec, _ := k.Training(j)
	return spec
}

// Ended reports whether a status belongs to a finished job.
func Ended(s *batch.JobStatus) bool {
	return s.Phase == batch.JobSucceeded || s.Phase == batch.JobFailed
}

// Over reports whether a job has finished, according to its status.
func Over(j client.Object) bool { return Ended(StatusOf(j)) }

// Replica returns the status of the replica with the name, or the zero value if the job has none.
func Replica(j client.Object, name string) batch.ReplicaStatus {
	tasks := StatusOf(j).Tasks
	for i := range tasks {
		for _, r := range tasks[i].Replicas {
			if r.Name == name {
				return r
			}
		}
	}
	return batch.ReplicaStatus{}
}

// Condition returns the condition of the type, or the zero value if the job has none.
func Condition(j client.Object, t batch.JobConditionType) batch.JobCondition {
	for _, c := range StatusOf(j).Conditions {
		if c.Type == t {
			return c
		}
	}
	return batch.JobCondition{}
}

// IsTrue reports whether the condition of the type is true.
func IsTrue(j client.Object, t batch.JobConditionType) bool {
	return Condition(j, t).Status == metav1.ConditionTrue
}

// New returns a GenericJob with the roles.
func New(name string, roles ...batch.ReplicaSpec) *batch.GenericJob {
	return &batch.GenericJob{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batch.GenericJobSpec{ReplicaSpecs: roles}}
}

// Role returns a role with one container that runs the command.
func Role(name string, replicas int32, command ...string) batch.ReplicaSpec {
	return batch.ReplicaSpec{Type: name, Replicas: &replicas, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "main", Image: "example.org/none", Command: command}}}}}
}

// Unlimited is the value of limit with which Restarting sets no limit.
const Unlimited = -1

// Restarting returns the role with a restart policy. If limit is Unlimited, the policy has no limit.
func Restarting(r batch.ReplicaSpec, policy batch.RestartPolicyType, limit int32) batch.ReplicaSpec {
	r.RestartPolicy = &batch.RestartPolicy{Policy: policy}
	if limit != Unlimited {
		r.RestartPolicy.Limit = &limit
	}
	return r
}
