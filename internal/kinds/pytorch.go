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
)

// pyTorchTrainingJob wires its replicas by the variables of torch.distributed, or starts them by torchrun.
var pyTorchTrainingJob = Kind{
	Name:           "PyTorchTrainingJob",
	Plural:         "pytorchtrainingjobs",
	ShortName:      "ptj",
	New:            func() Object { return &batch.PyTorchTrainingJob{} },
	NewList:        func() runtime.Object { return &batch.PyTorchTrainingJobList{} },
	lower:          lowerPyTorch,
	ValidateUpdate: validatePyTorchUpdate,
	Default:        defaultPyTorch,
	warn:           warnPyTorch,
	Status:         func(o Object) *batch.JobStatus { return &o.(*batch.PyTorchTrainingJob).Status.JobStatus },
	Training: func(o Object) (*batch.TrainingSpec, *batch.TrainingStatus) {
		j := o.(*batch.PyTorchTrainingJob)
		return &j.Spec.TrainingSpec, &j.Status.TrainingStatus
	},
}

var pyTorch = framework{containers: []string{"pytorch", "python"}, port: 29500, portName: "pytorch"}

func lowerPyTorch(o Object, opts Options) *lowering {
	p, ok := o.(*batch.PyTorchTrainingJob)
	if !ok || p == nil {
		return nil
	}
	l := newLowering(p, "PyTorchTrainingJob", opts)
	spec, path := &p.Spec, field.NewPath("spec")
	for i := range spec.ReplicaSpecs {
		l.trainingRole(&spec.ReplicaSpecs[i].TrainingReplicaSpec, &pyTorch, path.Child("replicaSpecs").Index(i))
	}
	run := spec.TorchrunConfig
	if !torchrunOn(run) {
		run = nil
	}
	l.elastic(spec, path)
	sane := l.replicas(path.Child("replicaSpecs"))
	l.training(&spec.TrainingSpec, path)
	if !sane || l.job.Replicas() == 0 {
		return l
	}
	master := l.firstRole()
	l.master(master, 0)
	l.job.Service = pyTorch.service(&l.job.Roles[master])
	l.job.Collective = run == nil // nobody but torchrun forms a process group anew
	host, port := l.job.PodName(l.job.Roles[master].Type, 0), pyTorch.portOf(&l.job.Roles[master])
	world, first := strconv.Itoa(l.job.Replicas()), 0
	for i := range l.job.Roles {
		role, base := &l.job.Roles[i], first
		for _, name := range []string{"MASTER_ADDR", "MASTER_PORT", "PYTHONUNBUFFERED", "WORLD_SIZE", "RANK"} {
			l.addEnv(i, name, max(len(host), len("65535")))
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
		l.torchrun(run, address(host, port), path.Child("torchrunConfig"))
	}
	return l
}

// firstRole is the index of the first role that has replicas.
func (l *lowering) firstRole() int {
	for i := range l.job.Roles {
		if l.job.Roles[i].Replicas > 0 {
			return i
		}
	}
	return 0
}

// torchrun has torchrun start the main containers; what they would run by themselves and after a pause becomes its arguments.
func (l *lowering) torchrun(t *batch.TorchrunConfig, endpoint string, path *field.Path) {
	nodes := strconv.Itoa(l.job.Replicas())
	if e := l.job.Elastic; e != nil {
		nodes = fmt.Sprintf("%d:%d", e.Min, e.Max)
	}
	command := []string{"torchrun", "--nnodes", nodes}
	if t.ProcPerNode != "" {
		l.procPerNode(t.ProcPerNode, path.Child("procPerNode"))
		command = append(command, "--nproc_per_node", t.ProcPerNode)
	}
	command = append(command, "--rdzv_backend", rdzvBackend(t), "--rdzv_endpoint", endpoint, "--rdzv_id", string(l.job.UID))
	if n := t.MaxRestarts; n != nil {
		if *n < 0 {
			l.invalid(path.Child("maxRestarts"), *n, "a number of restarts is 0 or more: leave maxRestarts out for torchrun's default")
		}
		command = append(command, "--max_restarts", strconv.Itoa(int(*n)))
	}
	command = append(command, t.ExtraOptions...)
	for i := range l.job.Roles {
		role := &l.job.Roles[i]
		t := *role.Template // but for this command it is shared
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

func (l *lowering) procPerNode(s string, path *field.Path) {
	switch s {
	case "auto", "cpu", "gpu":
		return
	}
	if n, err := strconv.Atoi(s); err != nil || n < 1 {
		l.invalid(path, s, "not a number of processes: write a number such as \"2\", or auto, cpu or gpu")
	}
}
