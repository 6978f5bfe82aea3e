package plugin

import (
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"
)

// Enable adds the plugin to the plugins of a profile, in place of the default bind plugin. It disables the PostFilter
// plugins, and with them preemption by pod priority, because the planner evicts by queue.
func Enable(p *config.Plugins) {
	this := config.Plugin{Name: Name}
	for _, point := range []*config.PluginSet{&p.PreEnqueue, &p.PreFilter, &p.Filter, &p.Reserve, &p.Permit, &p.Bind} {
		point.Enabled = append(point.Enabled, this)
	}
	p.Bind.Disabled = append(p.Bind.Disabled, config.Plugin{Name: defaultbinder.Name})
	p.PostFilter = config.PluginSet{Disabled: []config.Plugin{{Name: "*"}}}
}
