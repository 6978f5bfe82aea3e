package kinds

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// defaultBackoffLimit is the default of runPolicy.backoffLimit, the limit of restarts of a training job.
const defaultBackoffLimit = 3

// retryableCodes are the exit codes after which restart policy ExitCode restarts a replica: the codes of SIGINT,
// SIGKILL, SIGUSR1 and SIGTERM.
var retryableCodes = []engine.CodeRange{{First: 130, Last: 130}, {First: 137, Last: 138}, {First: 143, Last: 143}}

// framework holds what differs between training frameworks, apart from the environment variables of their processes.
type framework struct {
	// containers are possible names of the main container, in order of preference. If no container has one of them, the
	// first container is the main one.
	containers []string
	// port is the default port of a replica. A port of the main container with the name portName overrides it.
	port     int32
	portName string
}

// trainingRole appends a role of a training job.
func (c *conversion) trainingRole(rs *batch.TrainingReplicaSpec, f *framework) {
	role := c.role(rs.Type, rs.Replicas, &rs.Template)
	role.MainDecides = true
	switch orOnFailure(rs.RestartPolicy) {
	case batch.TrainingRestartOnFailure:
		role.Restart = engine.Restart{OnFailure: true}
	case batch.TrainingRestartAlways:
		role.Restart = engine.Restart{OnFailure: true, OnSuccess: true}
	case batch.TrainingRestartExitCode:
		role.Restart = engine.Restart{RestartCodes: retryableCodes}
	}
	role.Main = f.main(rs.Template.Spec.Containers)
}

// main returns the index of the main container; 0 if there are no containers.
func (f *framework) main(containers []corev1.Container) int {
	for _, name := range f.containers {
		if i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name }); i >= 0 {
			return i
		}
	}
	return 0
}

// MainContainer returns the name of the container whose end is the end of a pod's replica; empty if all containers of
// the pod count.
func MainContainer(pod *corev1.Pod) string {
	kind, err := ByName(pod.Labels[batch.LabelJobKind])
	if err != nil || kind.framework == nil || len(pod.Spec.Containers) == 0 {
		return ""
	}
	return pod.Spec.Containers[kind.framework.main(pod.Spec.Containers)].Name
}

// trainingRole validates the next role of a training job.
func (v *validator) trainingRole(rs *batch.TrainingReplicaSpec, path *field.Path) {
	v.role(rs.Replicas, &rs.Template, path)
	policies := []batch.TrainingRestartPolicy{batch.TrainingRestartAlways, batch.TrainingRestartOnFailure, batch.TrainingRestartNever, batch.TrainingRestartExitCode}
	if !slices.Contains(policies, orOnFailure(rs.RestartPolicy)) {
		unsupported(v, path.Child("restartPolicy"), rs.RestartPolicy, policies...)
	}
}

// training converts the fields that training jobs have in common. The roles must have been converted.
func (c *conversion) training(s *batch.TrainingSpec) {
	policy := orZero(s.RunPolicy)
	c.cleanUp(policy.CleanUpPolicy, policy.TTLSecondsAfterFinished)
	if d := policy.ActiveDeadlineSeconds; d != nil && *d >= 1 {
		c.job.Deadline = seconds(d)
	}
	limit := max(backoffLimit(&policy), 0)
	c.job.RestartLimit = &limit
	for i := range c.job.Roles {
		c.job.Roles[i].Restart.All = restartsAll(policy.RestartScope)
	}
	c.runMode(s.RunMode)
	c.scheduler(s.Scheduler)
}

// training validates the fields that training jobs have in common.
func (v *validator) training(s *batch.TrainingSpec, path *field.Path) {
	policy, at := orZero(s.RunPolicy), path.Child("runPolicy")
	v.cleanUp(policy.CleanUpPolicy, policy.TTLSecondsAfterFinished, at)
	if d := policy.ActiveDeadlineSeconds; d != nil && *d < 1 {
		v.invalid(at.Child("activeDeadlineSeconds"), *d, "a deadline in seconds is 1 or more: leave it out for none")
	}
	if limit := backoffLimit(&policy); limit < 0 {
		v.invalid(at.Child("backoffLimit"), limit, "a number of restarts is 0 or more: leave backoffLimit out for the default")
	}
	v.restartScope(policy.RestartScope, at.Child("restartScope"))
	v.runMode(s.RunMode, path.Child("runMode"))
	v.tensorBoard(s.TensorBoardSpec, path.Child("tensorboardSpec"))
	v.scheduler(s.Scheduler, path.Child("scheduler"))
}

func backoffLimit(p *batch.RunPolicy) int32 {
	if p.BackoffLimit == nil {
		return defaultBackoffLimit
	}
	return *p.BackoffLimit
}

// master makes one replica decide the job: the job succeeds when this replica succeeds, and fails when this replica
// fails for good.
func (c *conversion) master(role, rank int) {
	text, _ := json.Marshal(map[string][]int{c.job.Roles[role].Type: {rank}}) // strings and numbers always marshal
	rule := []engine.Rule{{Text: string(text), Members: []engine.Member{{Role: role, Rank: rank}}}}
	c.job.Success, c.job.Failure = rule, rule
}

// portOf returns the port that the replicas of a role serve.
func (f *framework) portOf(role *engine.Role) int32 {
	if role.Main < len(role.Template.Spec.Containers) {
		for _, p := range role.Template.Spec.Containers[role.Main].Ports {
			if p.Name == f.portName {
				return p.ContainerPort
			}
		}
	}
	return f.port
}

// service returns the job's Service with the port of one role.
func (f *framework) service(role *engine.Role) *engine.Service {
	port := f.portOf(role)
	return &engine.Service{Ports: []corev1.ServicePort{{Name: f.portName, Port: port, TargetPort: intstr.FromInt32(port)}}}
}

// setEnv sets environment variables in every container that does not set them itself.
func setEnv(spec *corev1.PodSpec, vars ...corev1.EnvVar) {
	for i := range spec.Containers {
		c := &spec.Containers[i]
		var added []corev1.EnvVar
		for _, v := range vars {
			if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == v.Name }) {
				added = append(added, v)
			}
		}
		// The added variables come first, because the container's own may refer to them.
		c.Env = append(added, c.Env...)
	}
}

func env(name, value string) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: value} }

func address(host string, port int32) string {
	return fmt.Sprintf("%s:%d", host, port)
}

// training adds an error for each changed field that training jobs have in common and that is immutable. The run policy
// may change except for restartScope.
func (c *changes) training(path *field.Path, updated, old *batch.TrainingSpec) {
	c.runMode(path.Child("runMode"), updated.RunMode, old.RunMode)
	c.keep(path.Child("runPolicy", "restartScope"), restartScope(orZero(updated.RunPolicy).RestartScope), restartScope(orZero(old.RunPolicy).RestartScope))
	c.keep(path.Child("tensorboardSpec"), updated.TensorBoardSpec, old.TensorBoardSpec)
	c.scheduler(path.Child("scheduler"), updated.Scheduler, old.Scheduler)
}

// trainingRole adds an error for each changed field of a role that is immutable: replicas, restartPolicy and template.
func (c *changes) trainingRole(path *field.Path, updated, old *batch.TrainingReplicaSpec) {
	c.keep(path.Child("replicas"), replicasOf(updated.Replicas), replicasOf(old.Replicas))
	c.keep(path.Child("restartPolicy"), orOnFailure(updated.RestartPolicy), orOnFailure(old.RestartPolicy))
	c.keep(path.Child("template"), &updated.Template, &old.Template)
}

func orOnFailure(p batch.TrainingRestartPolicy) batch.TrainingRestartPolicy {
	if p == "" {
		return batch.TrainingRestartOnFailure
	}
	return p
}
