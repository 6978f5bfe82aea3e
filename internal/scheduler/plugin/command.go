package plugin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/events"
	basecompatibility "k8s.io/component-base/compatibility"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubernetesversion "k8s.io/component-base/version"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	schedulerconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/version"
)

// NewCommand returns the command that runs the scheduler: a kube-scheduler with its flags. Its process has a profile
// for pods of the t9k-scheduler beside the default one.
func NewCommand() *cobra.Command {
	opts := options.NewOptions()
	settings := Config{}
	alone := false
	cmd := &cobra.Command{
		Use:          "t9k-scheduler",
		Short:        "Schedule pods, and those of a group all together or not at all",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		Version:      version.Version,
	}
	cmd.SetVersionTemplate(version.Line(cmd.Name(), "kube-scheduler "+kubernetesversion.Get().GitVersion))
	f := cmd.Flags()
	cmd.RunE = func(*cobra.Command, []string) error {
		ctx := server.SetupSignalContext()
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
		return run(ctx, opts, settings, alone)
	}
	for _, set := range opts.Flags.FlagSets {
		f.AddFlagSet(set)
	}
	f.Bool("version", false, "print the version and exit") // cobra acts on it; Kubernetes' packages have one that knows theirs only
	f.DurationVar(&settings.ReserveAfter, "reserve-after", 10*time.Minute, "how long a group waits before the scheduler reserves room for it; 0: never")
	f.DurationVar(&settings.Grace, "gang-grace-period", 5*time.Minute, "how long a gang may stay partly bound before the scheduler evicts its running pods")
	f.StringVar(&settings.TopologyLabel, "topology-label", "", "label of nodes that names their topology domain; unset: there are none")
	f.BoolVar(&alone, "no-default-profile", false, "leave the pods of default-scheduler to another scheduler")
	showDefault(f.Lookup("feature-gates"), costlyFeature+"=false")
	for _, o := range [][2]string{
		{"kube-api-qps", "1000"}, {"kube-api-burst", "2000"}, // with kube-scheduler's own limits, 50 pods start per second
		{"leader-elect-lease-duration", "10s"}, {"leader-elect-renew-deadline", "7s"}, // so that another scheduler acts within 15 s
	} {
		if err := f.Set(o[0], o[1]); err != nil {
			panic(fmt.Sprintf("the flags of kube-scheduler have changed: %v", err))
		}
		showDefault(f.Lookup(o[0]), o[1])
	}
	return cmd
}

// showDefault makes --help print the value that this command sets as the default.
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

func run(ctx context.Context, opts *options.Options, settings Config, alone bool) error {
	gates := opts.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	if err := logsapi.ValidateAndApply(opts.Logs, gates); err != nil {
		return fmt.Errorf("setting up logs: %w", err)
	}
	cc, sched, err := setup(ctx, opts, settings, alone)
	if err != nil {
		return err
	}
	return app.Run(ctx, cc, sched)
}

// setup builds a kube-scheduler with the plugin, its profile and its planner.
func setup(ctx context.Context, opts *options.Options, settings Config, alone bool) (*schedulerconfig.CompletedConfig, *scheduler.Scheduler, error) {
	var err error
	if opts.ComponentConfig, err = latest.Default(); err != nil {
		return nil, nil, fmt.Errorf("making the default configuration: %w", err)
	}
	if errs := opts.Validate(); len(errs) > 0 {
		return nil, nil, errs[0]
	}
	c, err := opts.Config(ctx)
	if err != nil {
		return nil, nil, err
	}
	if opts.ConfigFile == "" {
		c.ComponentConfig.Profiles = profiles(c.ComponentConfig.Profiles, alone)
	}
	if c.LeaderElection != nil { // otherwise metrics and logs call every lease kube-scheduler
		c.LeaderElection.Name = c.ComponentConfig.LeaderElection.ResourceName
	}
	registerMetrics()
	cc := c.Complete()
	if err := reviewPermissions(ctx, &cc); err != nil {
		return nil, nil, err
	}
	var made []*Plugin
	cfg := &cc.ComponentConfig
	recorders := func(name string) events.EventRecorderLogger { return cc.EventBroadcaster.NewRecorder(name) }
	sched, err := scheduler.New(ctx, cc.Client, cc.InformerFactory, cc.DynInformerFactory, profile.RecorderFactory(recorders),
		scheduler.WithComponentConfigVersion(cfg.APIVersion),
		scheduler.WithKubeConfig(cc.KubeConfig),
		scheduler.WithProfiles(cfg.Profiles...),
		scheduler.WithPercentageOfNodesToScore(cfg.PercentageOfNodesToScore),
		scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{Name: factory(settings, &made)}),
		scheduler.WithPodMaxBackoffSeconds(cfg.PodMaxBackoffSeconds),
		scheduler.WithPodInitialBackoffSeconds(cfg.PodInitialBackoffSeconds),
		scheduler.WithPodMaxInUnschedulablePodsDuration(cc.PodMaxInUnschedulablePodsDuration),
		scheduler.WithExtenders(cfg.Extenders...),
		scheduler.WithParallelism(cfg.Parallelism))
	if err != nil {
		return nil, nil, fmt.Errorf("making the scheduler: %w", err)
	}
	if len(made) != 1 || sched.Profiles[scheduling.SchedulerName] == nil {
		return nil, nil, fmt.Errorf("the configuration must enable plugin %s in one profile, %s, and does so in %d", Name, scheduling.SchedulerName, len(made))
	}
	fw := sched.Profiles[scheduling.SchedulerName]
	snapshot, ok := fw.SnapshotSharedLister().(*internalcache.Snapshot)
	if !ok {
		return nil, nil, fmt.Errorf("the scheduler's snapshot is a %T", fw.SnapshotSharedLister())
	}
	n := newNodes(klog.FromContext(ctx), fw, sched.Cache, snapshot, made[0].planner.index)
	n.uncounted, n.foreseen = uncountedResources(cfg.Profiles, fw.ListPlugins().Filter.Enabled)
	made[0].attach(ctx, sched, n)
	return &cc, sched, nil
}

func newNodes(logger klog.Logger, fw framework.Framework, cache internalcache.Cache, snapshot *internalcache.Snapshot, x *index) *nodes {
	return &nodes{logger: logger, profile: fw, cache: cache, snapshot: snapshot, index: x,
		assumed: map[types.UID]*corev1.Pod{}, reserved: map[types.UID]fwk.CycleState{}, away: map[string]*absence{}, searches: map[string]*search{}}
}

// profiles adds the profile of the t9k-scheduler to the default one. The profile has no preemption by pod priority,
// because the planner evicts by queue.
func profiles(defaults []config.KubeSchedulerProfile, alone bool) []config.KubeSchedulerProfile {
	ours := *defaults[0].DeepCopy()
	ours.SchedulerName = scheduling.SchedulerName
	plugin := config.PluginSet{Enabled: []config.Plugin{{Name: Name}}}
	p := ours.Plugins
	p.PreEnqueue, p.PreFilter, p.Filter, p.Reserve, p.Permit = plugin, plugin, plugin, plugin, plugin
	p.Bind = config.PluginSet{Enabled: plugin.Enabled, Disabled: []config.Plugin{{Name: defaultbinder.Name}}}
	p.PostFilter = config.PluginSet{Disabled: []config.Plugin{{Name: "*"}}}
	if alone {
		return []config.KubeSchedulerProfile{ours}
	}
	return append(defaults, ours)
}
