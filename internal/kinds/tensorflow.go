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

// tensorFlowTrainingJob is the kind that connects its replicas by the variable TF_CONFIG.
var tensorFlowTrainingJob = Kind{
	Name:           "TensorFlowTrainingJob",
	Plural:         "tensorflowtrainingjobs",
	ShortName:      "tftj",
	New:            func() Object { return &batch.TensorFlowTrainingJob{} },
	NewList:        func() runtime.Object { return &batch.TensorFlowTrainingJobList{} },
	framework:      &tensorFlow,
	convert:        convertTensorFlow,
	validate:       validateTensorFlow,
	validateUpdate: validateTensorFlowUpdate,
	schema: schema{
		kept:     trainingKept,
		roleKept: []keptField{{"replicas", ""}, {"restartPolicy", "'OnFailure'"}, {"template", ""}},
	},
	Status: func(o Object) *batch.JobStatus { return &o.(*batch.TensorFlowTrainingJob).Status.JobStatus },
	Training: func(o Object) (*batch.TrainingSpec, *batch.TrainingStatus) {
		j := o.(*batch.TensorFlowTrainingJob)
		return &j.Spec.TrainingSpec, &j.Status.TrainingStatus
	},
}

var tensorFlow = framework{containers: []string{"tensorflow"}, port: 2222, portName: "tensorflow"}

// These are the roles that TensorFlow knows.
const (
	tfChief     = "chief"
	tfWorker    = "worker"
	tfPS        = "ps"
	tfEvaluator = "evaluator"
)

func convertTensorFlow(o Object, c *conversion) {
	spec := &o.(*batch.TensorFlowTrainingJob).Spec
	for i := range spec.ReplicaSpecs {
		c.trainingRole(&spec.ReplicaSpecs[i], &tensorFlow)
	}
	sane := c.counted()
	c.training(&spec.TrainingSpec)
	if !sane || c.job.Replicas() == 0 {
		return
	}
	master := tensorFlowMaster(c.job)
	if master < 0 {
		c.uninterpretable = true
		return
	}
	c.master(master, 0)
	c.job.Service = tensorFlow.service(&c.job.Roles[master])
	c.tensorFlowSize()
	// The cluster is computed only when pods are created, because it names every replica.
	cluster := sync.OnceValue(c.tensorFlowCluster)
	for i := range c.job.Roles {
		role := &c.job.Roles[i]
		role.Expand = func(rank int, s *corev1.PodSpec) {
			config := tfConfig{Cluster: cluster(), Task: tfTask{Type: role.Type, Index: rank}}
			text, _ := json.Marshal(config) // strings and numbers always marshal
			setEnv(s, env("TF_CONFIG", string(text)))
		}
	}
}

// tensorFlowMaster returns the index of the role whose first replica decides the end of a job: the chief, or the
// workers if there is no chief; -1 if there is neither. A role without replicas does not count.
func tensorFlowMaster(job *engine.Job) int {
	for _, name := range []string{tfChief, tfWorker} {
		if i := roleIndex(job, name); i >= 0 && job.Roles[i].Replicas > 0 {
			return i
		}
	}
	return -1
}

func validateTensorFlow(o Object, v *validator) {
	spec, path := &o.(*batch.TensorFlowTrainingJob).Spec, field.NewPath("spec")
	for i := range spec.ReplicaSpecs {
		at := path.Child("replicaSpecs").Index(i)
		v.trainingRole(&spec.ReplicaSpecs[i], at)
		v.tensorFlowRole(&v.job.Roles[i], at)
	}
	sane := v.replicas(path.Child("replicaSpecs"))
	v.training(&spec.TrainingSpec, path)
	if sane && v.job.Replicas() > 0 && tensorFlowMaster(v.job) < 0 {
		v.required(path.Child("replicaSpecs"), "a job of TensorFlow has a chief or workers, whose first one decides its end: add a role chief or worker")
	}
	if v.clusterSize > maxJobSize/DefaultMaxReplicas/2 {
		v.sizeNote = fmt.Sprintf(" (TF_CONFIG, which lists every replica, has %s of it unless you set it yourself)", bytesText(v.clusterSize))
	}
}

// tensorFlowRole checks a role against the roles of TensorFlow, and the name of its main container.
func (v *validator) tensorFlowRole(role *engine.Role, path *field.Path) {
	switch role.Type {
	case tfChief, tfEvaluator:
		if role.Replicas > 1 {
			v.invalid(path.Child("replicas"), role.Replicas, "a job has one "+role.Type+" at most: ask for 1")
		}
	case tfWorker, tfPS:
	default:
		v.invalid(path.Child("type"), role.Type, "TensorFlow does not know this role: use one of chief, worker, ps, evaluator")
	}
	containers := role.Template.Spec.Containers
	if len(containers) > 0 && containers[role.Main].Name != tensorFlow.containers[0] {
		v.required(path.Child("template", "spec", "containers"), "one container is the main one: name it \"tensorflow\"")
	}
}

// tensorFlowSize computes an upper bound of the length of TF_CONFIG, as if every replica had the name of its role's
// last one. It stores the bound in clusterSize and in the addedEnv of every role.
func (c *conversion) tensorFlowSize() {
	length := len(`{"cluster":{},"task":{"type":"","index":}}`) + len(tfEvaluator) + len(strconv.Itoa(c.job.Replicas()))
	for i := range c.job.Roles {
		role := &c.job.Roles[i]
		last := address(c.job.PodName(role.Type, max(role.Replicas-1, 0)), tensorFlow.portOf(role))
		length += len(role.Type) + len(`"":[],`) + role.Replicas*(len(last)+len(`"",`))
	}
	for i := range c.job.Roles {
		c.addEnv(i, "TF_CONFIG", length)
	}
	c.clusterSize = length
}

// tfConfig is the value of TF_CONFIG that TensorFlow's cluster resolver reads.
type tfConfig struct {
	Cluster json.RawMessage `json:"cluster"`
	Task    tfTask          `json:"task"`
}

type tfTask struct {
	Type  string `json:"type"`
	Index int    `json:"index"`
}

// tensorFlowCluster returns the addresses of the replicas that take part in training, by role, as JSON. Evaluators do
// not take part.
func (c *conversion) tensorFlowCluster() json.RawMessage {
	cluster := map[string][]string{}
	for i := range c.job.Roles {
		role := &c.job.Roles[i]
		if role.Type == tfEvaluator {
			continue
		}
		for rank := range role.Replicas {
			cluster[role.Type] = append(cluster[role.Type], address(c.job.PodName(role.Type, rank), tensorFlow.portOf(role)))
		}
	}
	text, _ := json.Marshal(cluster) // strings always marshal
	return text
}

func validateTensorFlowUpdate(updated, old Object, c *changes) {
	u, o := updated.(*batch.TensorFlowTrainingJob), old.(*batch.TensorFlowTrainingJob)
	path := field.NewPath("spec")
	c.training(path, &u.Spec.TrainingSpec, &o.Spec.TrainingSpec)
	specs := path.Child("replicaSpecs")
	if !sameRoles(c, specs, u.Spec.ReplicaSpecs, o.Spec.ReplicaSpecs, func(s *batch.TrainingReplicaSpec) string { return s.Type }) {
		return
	}
	for i := range u.Spec.ReplicaSpecs {
		c.trainingRole(specs.Index(i), &u.Spec.ReplicaSpecs[i], &o.Spec.ReplicaSpecs[i])
	}
}
