package placement

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// HasPod reports whether the scheduler's cache has a pod.
func (n *Nodes) HasPod(pod *corev1.Pod) bool {
	_, err := n.cache.GetPod(pod)
	return err == nil
}

// HasNode reports whether the scheduler's cache has a node.
func (n *Nodes) HasNode(name string) bool {
	_, err := n.cache.GetNode(name)
	return err == nil
}

// PodsRefuseOthers reports whether running pods exclude other pods from their nodes by anti-affinity, so that pods of
// one shape do not always fit the same nodes.
func (n *Nodes) PodsRefuseOthers() bool {
	refusing, err := n.snapshot.HavePodsWithRequiredAntiAffinityList()
	return err == nil && len(refusing) > 0
}

// Domains returns the topology domains of the nodes by a label. of maps the name of each node that has the label to its
// domain. all lists the domains in alphabetical order. Both are nil if the snapshot cannot be read.
func (n *Nodes) Domains(label string) (of map[string]string, all []string) {
	listed, err := n.snapshot.List()
	if err != nil {
		return nil, nil
	}
	seen := map[string]bool{}
	of = make(map[string]string, len(listed))
	for _, info := range listed {
		if d := info.Node().Labels[label]; d != "" {
			of[info.Node().Name] = d
			seen[d] = true
		}
	}
	return of, slices.Sorted(maps.Keys(seen))
}

// Uncounted returns a function that reports whether a pod may get a resource from a source other than the allocatable
// resources of its node. It returns nil if the profile lacks a filter that package sites evaluates, because it is then
// unknown where a pod may run.
func (n *Nodes) Uncounted() func(resource string) bool {
	if n.ignored == nil {
		return nil
	}
	return func(resource string) bool {
		if n.ignored(resource) {
			return true
		}
		dra := n.profile.SharedDRAManager()
		return dra != nil && dra.DeviceClassResolver().GetDeviceClass(corev1.ResourceName(resource)) != nil
	}
}

// judged are the filters of the framework that package sites evaluates for empty nodes.
var judged = []string{names.NodeResourcesFit, names.NodeAffinity, names.TaintToleration}

// ignoredResources returns a function that reports which resources the filters of the t9k-scheduler's profile do not
// check on nodes. It returns nil if one of the judged filters is missing.
func ignoredResources(profiles []config.KubeSchedulerProfile, filters []config.Plugin) func(resource string) bool {
	for _, name := range judged {
		if !slices.ContainsFunc(filters, func(p config.Plugin) bool { return p.Name == name }) {
			return nil
		}
	}
	var resources, groups []string
	for _, p := range profiles {
		if p.SchedulerName != scheduling.SchedulerName {
			continue
		}
		for _, c := range p.PluginConfig {
			if args, ok := c.Args.(*config.NodeResourcesFitArgs); ok {
				resources, groups = append(resources, args.IgnoredResources...), append(groups, args.IgnoredResourceGroups...)
			}
		}
	}
	return func(resource string) bool {
		group, _, _ := strings.Cut(resource, "/")
		return slices.Contains(resources, resource) || slices.Contains(groups, group)
	}
}
