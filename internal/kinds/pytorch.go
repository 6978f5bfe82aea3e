package kinds

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// pyTorchTrainingJob is the kind that connects its replicas by the environment variables of torch.distributed, or
// starts them with torchrun.
var pyTorchTrainingJob = Kind{
	Name:           "PyTorchTrainingJob",
	Plural:         "pytorchtrainingjobs",
	ShortName:      "ptj",
	New:            func() Object { return &batch.PyTorchTrainingJob{} },
	NewList:        func() runtime.Object { return &batch.PyTorchTrainingJobList{} },
	framework:      &pyTorch,
	convert:        convertPyTorch,
	validate:       validatePyTorch,
	validateUpdate: validatePyTorchUpdate,
	schema:         pyTorchSchema,
	Default:        defaultPyTorch,
	warn:           warnPyTorch,
	Elastic:        true,
	Status:         func(o Object) *batch.JobStatus { return &o.(*batch.PyTorchTrainingJob).Status.JobStatus },
	Training: func(o Object) (*batch.TrainingSpec, *batch.TrainingStatus) {
		j := o.(*batch.PyTorchTrainingJob)
		return &j.Spec.TrainingSpec, &j.Status.TrainingStatus
	},
}

var pyTorch = framework{containers: []string{"pytorch", "python"}, port: 29500, portName: "pytorch"}

func convertPyTorch(o Object, c *conversion) {
	spec := &o.(*batch.PyTorchTrainingJob).Spec
	for i := range spec.ReplicaSpecs {
		c.trainingRole(&spec.ReplicaSpecs[i].TrainingReplicaSpec, &pyTorch)
	}
	run := spec.TorchrunConfig
	if !torchrunOn(run) {
		run = nil
	}
	c.elastic(spec)
	sane := c.counted()
	c.training(&spec.TrainingSpec)
	if !sane || c.job.Replicas() == 0 {
		return
	}
	master := c.firstRole()
	c.master(master, 0)
	c.job.Service = pyTorch.service(&c.job.Roles[master])
	c.job.Collective = run == nil // only torchrun can rebuild a process group
	host, port := c.job.PodName(c.job.Roles[master].Type, 0), pyTorch.portOf(&c.job.Roles[master])
	world, first := strconv.Itoa(c.job.Replicas()), 0
	for i := range c.job.Roles {
		role, base := &c.job.Roles[i], first
		for _, name := range []string{"MASTER_ADDR", "MASTER_PORT", "PYTHONUNBUFFERED", "WORLD_SIZE", "RANK"} {
			c.addEnv(i, name, max(len(host), len("65535")))
		}
		role.Expand = func(rank int, s *corev1.PodSpec) {
			setEnv(s, env("MASTER_ADDR", host), env("MASTER_PORT", strconv.Itoa(int(port))), env("PYTHONUNBUFFERED", "1"))
			if run == nil { // torchrun sets these itself
				setEnv(s, env("WORLD_SIZE", world), env("RANK", strconv.Itoa(base+rank)))
			}
		}
		first += role.Replicas
	}
	if run != nil {
		c.torchrun(run, address(host, port))
	}
}

func validatePyTorch(o Object, v *validator) {
	spec, path := &o.(*batch.PyTorchTrainingJob).Spec, field.NewPath("spec")
	for i := range spec.ReplicaSpecs {
		v.trainingRole(&spec.ReplicaSpecs[i].TrainingReplicaSpec, path.Child("replicaSpecs").Index(i))
	}
	v.elastic(spec, path)
	sane := v.replicas(path.Child("replicaSpecs"))
	v.training(&spec.TrainingSpec, path)
	if sane && v.job.Replicas() > 0 && torchrunOn(spec.TorchrunConfig) {
		v.torchrun(spec.TorchrunConfig, path.Child("torchrunConfig"))
	}
}

// firstRole returns the index of the first role that has replicas; 0 if there is none.
func (c *conversion) firstRole() int {
	for i := range c.job.Roles {
		if c.job.Roles[i].Replicas > 0 {
			return i
		}
	}
	return 0
}

// torchrun makes torchrun the command of the main containers, also after a pause, and sets the job's Rendezvous. The
// containers' args follow torchrun's own arguments.
func (c *conversion) torchrun(t *batch.TorchrunConfig, endpoint string) {
	c.job.Rendezvous = &engine.Rendezvous{Endpoint: endpoint, Backend: rdzvBackend(t)}
	nodes := strconv.Itoa(c.job.Replicas())
	if e := c.job.Elastic; e != nil {
		nodes = fmt.Sprintf("%d:%d", e.Min, e.Max)
	}
	command := []string{"torchrun", "--nnodes", nodes}
	if t.ProcPerNode != "" {
		command = append(command, "--nproc_per_node", t.ProcPerNode)
	}
	command = append(command, "--rdzv_backend", c.job.Rendezvous.Backend, "--rdzv_endpoint", endpoint, "--rdzv_id", string(c.job.UID))
	if n := t.MaxRestarts; n != nil {
		command = append(command, "--max_restarts", strconv.Itoa(int(*n)))
	}
	command = append(command, t.ExtraOptions...)
	for i := range c.job.Roles {
		role := &c.job.Roles[i]
		t := *role.Template // the template is shared, and the command changes
		t.Spec.Containers = slices.Clone(t.Spec.Containers)
		if role.Main < len(t.Spec.Containers) {
			t.Spec.Containers[role.Main].Command = command
		}
		role.Template = &t
		role.Resume.Command = nil
	}
}

func torchrunOn(t *batch.TorchrunConfig) bool { return t != nil && switchedOn(t.Enabled, t.Enable) }

func rdzvBackend(t *batch.TorchrunConfig) string { return cmp.Or(t.RdzvBackend, "c10d") }

// torchrun validates torchrun's options.
func (v *validator) torchrun(t *batch.TorchrunConfig, path *field.Path) {
	switch t.ProcPerNode {
	case "", "auto", "cpu", "gpu":
	default:
		if n, err := strconv.Atoi(t.ProcPerNode); err != nil || n < 1 {
			v.invalid(path.Child("procPerNode"), t.ProcPerNode, "not a number of processes: write a number such as \"2\", or auto, cpu or gpu")
		}
	}
	if n := t.MaxRestarts; n != nil && *n < 0 {
		v.invalid(path.Child("maxRestarts"), *n, "a number of restarts is 0 or more: leave maxRestarts out for torchrun's default")
	}
}
