// Package schedulercmd is the command t9k-scheduler: a kube-scheduler with its flags and configuration, and with the
// plugin that plans groups.
package schedulercmd

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/events"
	basecompatibility "k8s.io/component-base/compatibility"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	kubernetesversion "k8s.io/component-base/version"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	schedulerconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/scheduler/placement"
	"tensorstack.dev/batch/internal/scheduler/planner"
	"tensorstack.dev/batch/internal/scheduler/plugin"
	"tensorstack.dev/batch/internal/scheduler/writer"
	"tensorstack.dev/batch/internal/version"
)

// NewCommand returns the command that runs the scheduler: a kube-scheduler with its flags. Unless a configuration file
// lists other profiles, the scheduler has a profile for pods of the t9k-scheduler in addition to the default profile.
func NewCommand() *cobra.Command {
	opts := options.NewOptions()
	cmd := &cobra.Command{
		Use:          "t9k-scheduler",
		Short:        "Schedule pods, and start the pods of a group all together or not at all",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		Version:      version.Version,
	}
	cmd.SetVersionTemplate(version.Line(cmd.Name(), "kube-scheduler "+kubernetesversion.Get().GitVersion))
	f := cmd.Flags()
	cmd.RunE = func(*cobra.Command, []string) error {
		ctx := server.SetupSignalContext()
		if opts.ConfigFile == "" { // with a configuration file, the file sets these fields
			for _, o := range ownDefaults {
				f.Lookup(o[0]).Changed = true // otherwise kube-scheduler ignores them
			}
		}
		if err := emulate(ctx, opts, f); err != nil {
			return err
		}
		const gates = "feature-gates"
		if turnsOffCostlyFeature(f.Lookup(gates).Value.String(), f.Lookup("emulated-version").Value.String()) {
			if err := f.Set(gates, costlyFeature+"=false"); err != nil {
				return err
			}
		}
		if err := opts.ComponentGlobalsRegistry.Set(); err != nil {
			return err
		}
		return run(ctx, opts)
	}
	for _, set := range opts.Flags.FlagSets {
		f.AddFlagSet(set)
	}
	// Cobra handles this flag. The version flag of Kubernetes' packages would print only Kubernetes' version.
	f.Bool("version", false, "print the version and exit")
	showDefault(f.Lookup("feature-gates"), costlyFeature+"=false")
	for _, o := range ownDefaults {
		if err := f.Set(o[0], o[1]); err != nil {
			panic(fmt.Sprintf("the flags of kube-scheduler have changed: %v", err))
		}
		flag := f.Lookup(o[0])
		flag.Changed = false
		showDefault(flag, o[1])
	}
	for name, note := range map[string]string{"config": " A KubeSchedulerConfiguration; docs/scheduler.md describes what this program reads in it.",
		"kubeconfig": " t9k-scheduler reads it in that case too."} {
		f.Lookup(name).Usage += note
	}
	return cmd
}

// ownDefaults are flags of kube-scheduler for which this program has other defaults.
var ownDefaults = [][2]string{
	{"kube-api-qps", "1000"}, {"kube-api-burst", "2000"}, // with kube-scheduler's own limits, 50 pods start per second
	// so that another scheduler leads at most 15 s after the leader was killed
	{"leader-elect-lease-duration", "10s"}, {"leader-elect-renew-deadline", "7s"}, {"leader-elect-retry-period", "1s"},
}

// showDefault makes --help print the default that this command sets.
func showDefault(flag *pflag.Flag, value string) {
	gate, setting, isGate := strings.Cut(value, "=")
	if !isGate {
		flag.DefValue = value
		return
	}
	lines := strings.Split(flag.Usage, "\n")
	for i, line := range lines {
		if strings.Contains(line, gate+"=true|false") {
			lines[i] = strings.NewReplacer("default=true", "default="+setting, "default=false", "default="+setting).Replace(line)
		}
	}
	flag.Usage = strings.Join(lines, "\n")
}

func run(ctx context.Context, opts *options.Options) error {
	gates := opts.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	if err := logsapi.ValidateAndApply(opts.Logs, gates); err != nil {
		return fmt.Errorf("setting up logs: %w", err)
	}
	cc, sched, err := setup(ctx, opts)
	if err != nil {
		return err
	}
	review, err := reviewPermissions(cc)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var reviewing sync.WaitGroup
	reviewing.Go(func() { review.Run(ctx) })
	defer reviewing.Wait()
	defer stop()
	return app.Run(ctx, cc, sched)
}

// setup builds a kube-scheduler with the plugin, its profile and its planner.
func setup(ctx context.Context, opts *options.Options) (*schedulerconfig.CompletedConfig, *scheduler.Scheduler, error) {
	if err := loadConfiguration(ctx, opts); err != nil {
		return nil, nil, err
	}
	if errs := opts.Validate(); len(errs) > 0 {
		return nil, nil, errs[0]
	}
	c, err := opts.Config(ctx)
	if err != nil {
		return nil, nil, err
	}
	if c.LeaderElection != nil { // otherwise metrics and logs name every lease "kube-scheduler"
		c.LeaderElection.Name = c.ComponentConfig.LeaderElection.ResourceName
	}
	registerMetrics()
	cc := c.Complete()
	var made []*plugin.Plugin
	cfg := &cc.ComponentConfig
	recorders := func(name string) events.EventRecorderLogger { return cc.EventBroadcaster.NewRecorder(name) }
	sched, err := scheduler.New(ctx, cc.Client, cc.InformerFactory, cc.DynInformerFactory, profile.RecorderFactory(recorders),
		scheduler.WithComponentConfigVersion(cfg.APIVersion),
		scheduler.WithKubeConfig(cc.KubeConfig),
		scheduler.WithProfiles(cfg.Profiles...),
		scheduler.WithPercentageOfNodesToScore(cfg.PercentageOfNodesToScore),
		scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{plugin.Name: factory(&made)}),
		scheduler.WithPodMaxBackoffSeconds(cfg.PodMaxBackoffSeconds),
		scheduler.WithPodInitialBackoffSeconds(cfg.PodInitialBackoffSeconds),
		scheduler.WithPodMaxInUnschedulablePodsDuration(cc.PodMaxInUnschedulablePodsDuration),
		scheduler.WithExtenders(cfg.Extenders...),
		scheduler.WithParallelism(cfg.Parallelism))
	if err != nil {
		return nil, nil, fmt.Errorf("making the scheduler: %w", err)
	}
	if len(made) != 1 || sched.Profiles[scheduling.SchedulerName] == nil {
		return nil, nil, fmt.Errorf("the configuration must enable plugin %s in one profile, %s, and does so in %d", plugin.Name, scheduling.SchedulerName, len(made))
	}
	fw := sched.Profiles[scheduling.SchedulerName]
	n, err := placement.New(klog.FromContext(ctx), fw, sched.Cache, cfg.Profiles)
	if err != nil {
		return nil, nil, err
	}
	made[0].Attach(ctx, sched, n)
	return &cc, sched, nil
}

// factory returns the function with which the scheduler creates the plugin. The function appends each plugin to made.
func factory(made *[]*plugin.Plugin) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		p, err := plugin.New(ctx, args, handle)
		if err != nil {
			return nil, err
		}
		*made = append(*made, p)
		return p, nil
	}
}

// registerMetrics adds the scheduler's metrics to the metrics of the kube-scheduler. It is not an init function,
// because other programs that contain this package use the same registry.
var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.Registerer().MustRegister(append(planner.Metrics, writer.EvictedPods)...)
})
