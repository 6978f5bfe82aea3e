package kinds

import (
	"encoding/json"
	"fmt"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// tensorFlowTrainingJob wires its replicas by the variable TF_CONFIG.
var tensorFlowTrainingJob = Kind{
	Name:           "TensorFlowTrainingJob",
	Plural:         "tensorflowtrainingjobs",
	ShortName:      "tftj",
	New:            func() Object { return &batch.TensorFlowTrainingJob{} },
	NewList:        func() runtime.Object { return &batch.TensorFlowTrainingJobList{} },
	lower:          lowerTensorFlow,
	ValidateUpdate: validateTensorFlowUpdate,
	Status:         func(o Object) *batch.JobStatus { return &o.(*batch.TensorFlowTrainingJob).Status.JobStatus },
	Training: func(o Object) (*batch.TrainingSpec, *batch.TrainingStatus) {
		j := o.(*batch.TensorFlowTrainingJob)
		return &j.Spec.TrainingSpec, &j.Status.TrainingStatus
	},
}

var tensorFlow = framework{containers: []string{"tensorflow"}, port: 2222, portName: "tensorflow"}

// The roles of TensorFlow.
const (
	tfChief     = "chief"
	tfWorker    = "worker"
	tfPS        = "ps"
	tfEvaluator = "evaluator"
)

func lowerTensorFlow(o Object, opts Options) *lowering {
	t, ok := o.(*batch.TensorFlowTrainingJob)
	if !ok || t == nil {
		return nil
	}
	l := newLowering(t, "TensorFlowTrainingJob", opts)
	spec, path := &t.Spec, field.NewPath("spec")
	for i := range spec.ReplicaSpecs {
		rs, at := &spec.ReplicaSpecs[i], path.Child("replicaSpecs").Index(i)
		l.tensorFlowRole(l.trainingRole(rs, &tensorFlow, at), at)
	}
	sane := l.replicas(path.Child("replicaSpecs"))
	l.training(&spec.TrainingSpec, path)
	if !sane || l.job.Replicas() == 0 {
		return l
	}
	master := l.roleIndex(tfChief)
	if master < 0 || l.job.Roles[master].Replicas == 0 {
		master = l.roleIndex(tfWorker)
	}
	if master < 0 || l.job.Roles[master].Replicas == 0 {
		l.required(path.Child("replicaSpecs"), "a job of TensorFlow has a chief or workers, whose first one decides its end: add a role chief or worker")
		l.senseless = true
		return l
	}
	l.master(master, 0)
	l.job.Service = tensorFlow.service(&l.job.Roles[master])
	l.tensorFlowSize()
	cluster := sync.OnceValue(l.tensorFlowCluster) // for new pods alone: it names every replica
	for i := range l.job.Roles {
		role := &l.job.Roles[i]
		role.Expand = func(rank int, s *corev1.PodSpec) {
			config := tfConfig{Cluster: cluster(), Task: tfTask{Type: role.Type, Index: rank}}
			text, _ := json.Marshal(config) // strings and numbers always marshal
			setEnv(s, env("TF_CONFIG", string(text)))
		}
	}
	return l
}

// tensorFlowSize notes how long TF_CONFIG becomes, at most: as if every replica had the name of its role's last one.
func (l *lowering) tensorFlowSize() {
	length := len(`{"cluster":{},"task":{"type":"","index":}}`) + len(tfEvaluator) + len(strconv.Itoa(l.job.Replicas()))
	for i := range l.job.Roles {
		role := &l.job.Roles[i]
		last := address(l.job.PodName(role.Type, max(role.Replicas-1, 0)), tensorFlow.portOf(role))
		length += len(role.Type) + len(`"":[],`) + role.Replicas*(len(last)+len(`"",`))
	}
	for i := range l.job.Roles {
		l.addEnv(i, "TF_CONFIG", length)
	}
	if length > maxJobSize/DefaultMaxReplicas/2 {
		l.sizeNote = fmt.Sprintf(" (TF_CONFIG, which lists every replica, has %s of it where you do not set it yourself)", bytesText(length))
	}
}

// tensorFlowRole checks a role against what TensorFlow knows.
func (l *lowering) tensorFlowRole(role *engine.Role, path *field.Path) {
	switch role.Type {
	case tfChief, tfEvaluator:
		if role.Replicas > 1 {
			l.invalid(path.Child("replicas"), role.Replicas, "a job has one "+role.Type+" at most: ask for 1")
		}
	case tfWorker, tfPS:
	default:
		l.invalid(path.Child("type"), role.Type, "TensorFlow does not know this role: use one of chief, worker, ps, evaluator")
	}
	containers := role.Template.Spec.Containers
	if len(containers) > 0 && containers[role.Main].Name != tensorFlow.containers[0] {
		l.required(path.Child("template", "spec", "containers"), "one container is the main one: name it \"tensorflow\"")
	}
}

// tfConfig is what TensorFlow's cluster resolver reads from TF_CONFIG.
type tfConfig struct {
	Cluster json.RawMessage `json:"cluster"`
	Task    tfTask          `json:"task"`
}

type tfTask struct {
	Type  string `json:"type"`
	Index int    `json:"index"`
}

// tensorFlowCluster lists the addresses of the replicas that take part in training. An evaluator does not.
func (l *lowering) tensorFlowCluster() json.RawMessage {
	cluster := map[string][]string{}
	for i := range l.job.Roles {
		role := &l.job.Roles[i]
		if role.Type == tfEvaluator {
			continue
		}
		for rank := range role.Replicas {
			cluster[role.Type] = append(cluster[role.Type], address(l.job.PodName(role.Type, rank), tensorFlow.portOf(role)))
		}
	}
	text, _ := json.Marshal(cluster) // strings always marshal
	return text
}

func validateTensorFlowUpdate(updated, old Object) field.ErrorList {
	u, ok := updated.(*batch.TensorFlowTrainingJob)
	o, ok2 := old.(*batch.TensorFlowTrainingJob)
	if !ok || !ok2 || u == nil || o == nil {
		return wrongType(updated, "TensorFlowTrainingJob")
	}
	var c changes
	path := field.NewPath("spec")
	c.training(path, &u.Spec.TrainingSpec, &o.Spec.TrainingSpec)
	specs := path.Child("replicaSpecs")
	if !sameRoles(&c, specs, u.Spec.ReplicaSpecs, o.Spec.ReplicaSpecs, func(s *batch.TrainingReplicaSpec) string { return s.Type }) {
		return c.errs
	}
	for i := range u.Spec.ReplicaSpecs {
		c.trainingRole(specs.Index(i), &u.Spec.ReplicaSpecs[i], &o.Spec.ReplicaSpecs[i])
	}
	return c.errs
}
