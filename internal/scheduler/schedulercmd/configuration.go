package schedulercmd

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/scheduler/plugin"
)

// loadConfiguration sets the component configuration from the file or, without a file, to the default with the profiles
// default-scheduler and t9k-scheduler. It enables the plugin in the profile t9k-scheduler, unless the file does. It
// then clears opts.ConfigFile, so that in both cases flags that the user has set will replace fields of the
// configuration. With a file, kube-scheduler itself would ignore most of these flags, including the kubeconfig.
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
			plugin.Enable(p.Plugins)
		}
	}
	return nil
}

// enablesPlugin reports whether a profile of the configuration file already enables the plugin.
func enablesPlugin(p *config.Plugins) bool {
	return slices.ContainsFunc([]config.PluginSet{p.MultiPoint, p.Permit}, func(s config.PluginSet) bool {
		return slices.ContainsFunc(s.Enabled, func(enabled config.Plugin) bool { return enabled.Name == plugin.Name })
	})
}
