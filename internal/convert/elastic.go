package convert

import (
	"fmt"
	"strings"
)

// elastic converts an elastic job, which torchrun starts. processes is the value of spec.nprocPerNode; empty if it is
// unset.
func (c *conversion) elastic(roles []*role, processes string) {
	const at = "spec.elasticPolicy"
	if old, ok := c.text("spec", "elasticPolicy", "nProcPerNode"); ok && processes == "" {
		processes = old
	} else if ok && old != processes {
		c.warn(at+".nProcPerNode", "left out: spec.nprocPerNode sets it to "+processes)
	}
	if processes == "" {
		processes = defaultProcesses
	}
	c.bounds(roles)
	for _, r := range roles {
		args, ok := r.torchrunArgs()
		if !ok && r.main != nil {
			c.fail(r.mainPath+".command", "torchrun starts an elastic job here, and the torchrun options cannot be read from this command: "+
				"write it as a list that begins with torchrun, such as [torchrun, train.py]")
		}
		if own := ownOptions(args); len(own) > 0 {
			c.warn(r.mainPath+".command", fmt.Sprintf("its options %s are now in the args, where they take precedence over torchrunConfig", strings.Join(own, ", ")))
		}
		if vars := launcherVariables.FindAllString(r.text(), -1); len(vars) > 0 {
			c.warn(r.mainPath+".command", fmt.Sprintf("it refers to %s, which only torchrun sets, and only for its processes: remove it if it is for torchrun",
				strings.Join(vars, ", ")))
		}
	}
	c.torchrun(roles)
	c.set(processes, "torchrunConfig", "procPerNode")
	if backend, ok := c.text("spec", "elasticPolicy", "rdzvBackend"); ok {
		c.set(backend, "torchrunConfig", "rdzvBackend")
	}
	if n, ok := c.number("spec", "elasticPolicy", "maxRestarts"); ok {
		c.set(n, "torchrunConfig", "maxRestarts")
	}
	if options := c.rendezvous(roles); len(options) > 0 {
		c.set(options, "torchrunConfig", "extraOptions")
	}
	if _, ok := c.take("spec", "elasticPolicy", "metrics"); ok {
		c.warn(at+".metrics", "left out: the operator creates no HorizontalPodAutoscaler. Create one with these metrics and with the new job as scaleTargetRef")
	}
}

// bounds converts the size of an elastic job. In Kubeflow, the bounds that torchrun gets count all nodes, including the
// Master, and the job starts with the replicas of its roles.
func (c *conversion) bounds(roles []*role) {
	const at = "spec.elasticPolicy"
	var total, workers int64
	for _, r := range roles {
		total += r.replicas
		if r.spec["type"] == "worker" {
			workers = r.replicas
		}
		delete(r.spec, "replicas") // the size of the whole job replaces it
	}
	lo, hasLo := c.number("spec", "elasticPolicy", "minReplicas")
	hi, hasHi := c.number("spec", "elasticPolicy", "maxReplicas")
	switch {
	case !hasLo && !hasHi:
		lo, hi = workers, workers
	case !hasLo:
		lo = hi
	case !hasHi:
		hi = lo
	}
	want := min(max(total, lo), hi)
	if want != total {
		c.warn(at, fmt.Sprintf("the roles have %d replicas, which is outside of %d to %d: the job begins with %d", total, lo, hi, want))
	}
	for name, value := range map[string]any{"enabled": true, "minReplicas": lo, "maxReplicas": hi, "expectedReplicas": want} {
		c.set(value, "elastic", name)
	}
	if len(roles) > 1 {
		roles[0].spec["scalingWeight"] = int64(0) // the role keeps exactly rank 0
		c.warn(at, "the bounds count all replicas, including the Master, as torchrun does; in Kubeflow, kubectl scale counts only the workers")
	}
}

// rendezvous returns torchrun's options for the rendezvous settings of Kubeflow for which torchrunConfig has no field.
// They become the extraOptions, which follow the operator's own options and therefore take precedence over them.
func (c *conversion) rendezvous(roles []*role) []any {
	var options []any
	host, hasHost := c.text("spec", "elasticPolicy", "rdzvHost")
	port, hasPort := c.number("spec", "elasticPolicy", "rdzvPort")
	if hasHost || hasPort {
		if !hasHost || len(roles) == 1 && host == fmt.Sprintf("%s-worker-0", c.name) {
			host = "$(MASTER_ADDR)" // the host of rank 0
		}
		portText := "$(MASTER_PORT)"
		if hasPort {
			portText = fmt.Sprint(port)
		}
		if host != "$(MASTER_ADDR)" || hasPort {
			options = append(options, fmt.Sprintf("--rdzv_endpoint=%s:%s", host, portText))
		}
	}
	if id, ok := c.text("spec", "elasticPolicy", "rdzvId"); ok {
		options = append(options, "--rdzv_id="+id)
	}
	if settings := c.settings(); settings != "" {
		options = append(options, "--rdzv_conf="+settings)
	}
	if c.flag("spec", "elasticPolicy", "standalone") {
		options = append(options, "--standalone")
		c.warn("spec.elasticPolicy.standalone", "carried over: each replica trains on its own")
	}
	return options
}

// settings returns the configuration of the rendezvous as KEY=VALUE pairs that are separated by commas; empty if there
// is none.
func (c *conversion) settings() string {
	given, ok := c.take("spec", "elasticPolicy", "rdzvConf")
	list, isList := given.([]any)
	if ok && !isList {
		c.fail("spec.elasticPolicy.rdzvConf", "not a list: write entries with key and value")
	}
	var parts []string
	for i, entry := range list {
		setting, _ := entry.(map[string]any)
		parts = append(parts, fmt.Sprintf("%v=%v", setting["key"], setting["value"]))
		if len(setting) != 2 || setting["key"] == nil || setting["value"] == nil {
			c.fail(fmt.Sprintf("spec.elasticPolicy.rdzvConf[%d]", i), "not an entry with only key and value: write these two fields")
		}
	}
	return strings.Join(parts, ",")
}
