package plugin

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/configuration"
)

// loadConfiguration sets the component configuration from the file, or to the default with the profiles default-scheduler
// and t9k-scheduler. Flags that the user has set replace fields of either: kube-scheduler would ignore most of them, the
// kubeconfig among them, if there is a file.
func loadConfiguration(ctx context.Context, opts *options.Options) error {
	var err error
	if opts.ConfigFile != "" {
		if opts.ComponentConfig, err = options.LoadConfigFromFile(klog.FromContext(ctx), opts.ConfigFile); err != nil {
			return fmt.Errorf("the configuration file %s is invalid: %w", opts.ConfigFile, err)
		}
		opts.ConfigFile = ""
	} else {
		if opts.ComponentConfig, err = latest.Default(); err != nil {
			return fmt.Errorf("making the default configuration: %w", err)
		}
		ours := *opts.ComponentConfig.Profiles[0].DeepCopy()
		ours.SchedulerName = scheduling.SchedulerName
		opts.ComponentConfig.Profiles = append(opts.ComponentConfig.Profiles, ours)
	}
	for i := range opts.ComponentConfig.Profiles {
		if p := &opts.ComponentConfig.Profiles[i]; p.SchedulerName == scheduling.SchedulerName && !enablesPlugin(p.Plugins) {
			enablePlugin(p.Plugins)
		}
	}
	return nil
}

// enablesPlugin reports whether the configuration file itself says where the plugin runs.
func enablesPlugin(p *config.Plugins) bool {
	return slices.ContainsFunc([]config.PluginSet{p.MultiPoint, p.Permit}, func(s config.PluginSet) bool {
		return slices.ContainsFunc(s.Enabled, func(enabled config.Plugin) bool { return enabled.Name == Name })
	})
}

// enablePlugin adds the plugin to the default plugins of a profile. The profile has no preemption by pod priority,
// because the planner evicts by queue.
func enablePlugin(p *config.Plugins) {
	plugin := config.Plugin{Name: Name}
	for _, point := range []*config.PluginSet{&p.PreEnqueue, &p.PreFilter, &p.Filter, &p.Reserve, &p.Permit, &p.Bind} {
		point.Enabled = append(point.Enabled, plugin)
	}
	p.Bind.Disabled = append(p.Bind.Disabled, config.Plugin{Name: defaultbinder.Name})
	p.PostFilter = config.PluginSet{Disabled: []config.Plugin{{Name: "*"}}}
}

// settingsOf reads the plugin's arguments.
func settingsOf(args runtime.Object) (Config, error) {
	var text []byte
	if args != nil {
		unknown, ok := args.(*runtime.Unknown)
		if !ok {
			return Config{}, fmt.Errorf("the arguments of plugin %s are a %T", Name, args)
		}
		text = unknown.Raw
	}
	path := field.NewPath("profiles").Key(scheduling.SchedulerName).Child("pluginConfig").Key(Name).Child("args")
	a, err := configuration.GangArgs(text, path)
	if err != nil {
		return Config{}, fmt.Errorf("the configuration file is invalid: %w", err)
	}
	return Config{ReserveAfter: a.ReserveAfter.Duration, Grace: a.GangGracePeriod.Duration, TopologyLabel: a.TopologyLabel, Tracing: a.Tracing}, nil
}
