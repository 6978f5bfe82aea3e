package convert

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

var pyTorch = framework{
	field: "pytorchReplicaSpecs",
	roles: [][2]string{{"Master", "master"}, {"Worker", "worker"}},

	container: "pytorch", port: "pytorchjob-port", newPort: "pytorch", restart: "OnFailure",
}

func (c *conversion) pyTorch() {
	roles := c.roles(&pyTorch)
	processes, _ := c.text("spec", "nprocPerNode")
	if policy, _, _ := unstructured.NestedFieldNoCopy(c.fields, "spec", "elasticPolicy"); policy != nil {
		c.elastic(roles, processes)
		return
	}
	c.plain(roles, processes)
	var total int64
	for _, r := range roles {
		total += r.replicas
	}
	if _, torchrun := c.spec["torchrunConfig"]; !torchrun && total > 1 && c.restarts() {
		c.set(string(batch.RestartJob), "runPolicy", "restartScope")
		c.warn("spec.pytorchReplicaSpecs", "all replicas restart together (runPolicy.restartScope), because a process group without torchrun cannot accept "+
			"a single one again; in Kubeflow, only the replica that failed restarts")
	}
}

// defaultProcesses is the number of processes that Kubeflow makes torchrun start by default. The API server writes it
// into every job.
const defaultProcesses = "auto"

// plain converts a job of fixed size. Kubeflow configures torchrun by environment variables. If the commands of all
// roles only call torchrun, they become torchrunConfig. If they use torchrun in another way, or if processes is not the
// default, the containers get the same variables as in Kubeflow.
func (c *conversion) plain(roles []*role, processes string) {
	calls, bare := false, true
	for _, r := range roles {
		calls = calls || usesTorchrun.MatchString(r.text())
		bare = bare && r.callsPlainTorchrun()
	}
	if processes == "" {
		processes = defaultProcesses
	}
	switch {
	case len(roles) == 0 || !calls && processes == defaultProcesses:
		return
	case calls && bare:
		c.torchrun(roles)
		c.set(processes, "torchrunConfig", "procPerNode")
		return
	}
	setLauncher(roles, processes)
	if n, err := strconv.Atoi(processes); err == nil && n > 1 && !calls {
		c.warn("spec.nprocPerNode", "carried over as the variable PET_NPROC_PER_NODE, which torchrun reads. Without torchrun, WORLD_SIZE is the "+
			"number of replicas here, and that number times nprocPerNode in Kubeflow")
	}
}

// callsPlainTorchrun reports whether the main container calls torchrun without the options in decided and without
// references to launcherVariables.
func (r *role) callsPlainTorchrun() bool {
	args, ok := r.torchrunArgs()
	return ok && len(ownOptions(args)) == 0 && !launcherVariables.MatchString(r.text())
}

// setLauncher sets the variables that configure torchrun in the main containers, as Kubeflow does.
func setLauncher(roles []*role, processes string) {
	var total int64
	for _, r := range roles {
		total += r.replicas
	}
	for _, r := range roles {
		r.setEnv("PET_NNODES", strconv.FormatInt(total, 10))
		r.setEnv("PET_NPROC_PER_NODE", processes)
		// The operator sets RANK, MASTER_ADDR and MASTER_PORT.
		r.setEnv("PET_NODE_RANK", "$(RANK)")
		r.setEnv("PET_MASTER_ADDR", "$(MASTER_ADDR)")
		r.setEnv("PET_MASTER_PORT", "$(MASTER_PORT)")
	}
}

var (
	usesTorchrun = regexp.MustCompile(`torchrun|torch\.distributed\.run|\bPET_`)
	// launcherVariables matches the variables that a command can refer to in Kubeflow and that its container does not
	// have with torchrunConfig.
	launcherVariables = regexp.MustCompile(`\b(PET_[A-Z_]+|RANK|WORLD_SIZE)\b`)
	python            = regexp.MustCompile(`^python[0-9.]*$`)
)

// text returns the command and arguments of the main container as one string.
func (r *role) text() string { return strings.Join(append(r.list("command"), r.list("args")...), "\n") }

func (r *role) list(field string) []string {
	if r.main == nil {
		return nil
	}
	list, _, _ := unstructured.NestedStringSlice(r.main, field)
	return list
}

// torchrunArgs returns the arguments of torchrun in the main container's command. It returns false if the command
// begins neither with torchrun nor with python -m torch.distributed.run.
func (r *role) torchrunArgs() ([]string, bool) {
	words := append(r.list("command"), r.list("args")...)
	if len(r.list("command")) == 0 {
		return nil, false
	}
	switch program := path.Base(words[0]); {
	case program == "torchrun":
		return words[1:], true
	case python.MatchString(program):
		words = words[1:]
		if len(words) > 0 && words[0] == "-u" { // output is always unbuffered here
			words = words[1:]
		}
		if len(words) > 1 && words[0] == "-m" && words[1] == "torch.distributed.run" {
			return words[2:], true
		}
	}
	return nil, false
}

// decided are the options of torchrun that torchrunConfig or the operator sets. switches are the options of torchrun
// that have no value.
var (
	decided = []string{"nnodes", "nproc_per_node", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf", "standalone",
		"max_restarts", "node_rank", "master_addr", "master_port"}
	switches = []string{"standalone", "m", "module", "no_python", "run_path"}
)

// ownOptions returns the options in decided that a torchrun call with these arguments sets itself, as they are written.
func ownOptions(args []string) []string {
	var own []string
	for i := 0; i < len(args) && strings.HasPrefix(args[i], "-"); i++ {
		name, _, assigned := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		name = strings.ReplaceAll(name, "-", "_")
		if slices.Contains(decided, name) {
			own = append(own, args[i])
		}
		if !assigned && !slices.Contains(switches, name) {
			i++
		}
	}
	return own
}

// torchrun converts the torchrun calls in the roles' commands to torchrunConfig.
func (c *conversion) torchrun(roles []*role) {
	c.set(true, "torchrunConfig", "enabled")
	for _, r := range roles {
		args, ok := r.torchrunArgs()
		if r.main == nil || !ok {
			continue
		}
		if program := r.list("command")[0]; strings.Contains(program, "/") {
			c.warn(r.mainPath+".command", fmt.Sprintf("torchrun is started from PATH, and not by %s", program))
		}
		delete(r.main, "command")
		list := make([]any, len(args))
		for i, a := range args {
			list[i] = a
		}
		r.main["args"] = list
	}
}

// setEnv sets a variable of the main container if it is unset.
func (r *role) setEnv(name, value string) {
	if r.main == nil {
		return
	}
	vars, _ := r.main["env"].([]any)
	for _, v := range vars {
		if e, ok := v.(map[string]any); ok && e["name"] == name {
			return
		}
	}
	r.main["env"] = append(vars, map[string]any{"name": name, "value": value})
}
