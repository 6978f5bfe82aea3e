// Package operator assembles the t9k-operator from its controllers and webhooks. It decides nothing about jobs itself.
// Start reading at NewCommand.
package operator

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	configv1alpha1 "tensorstack.dev/batch/api/config/v1alpha1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	tensorboardv1beta1 "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/configuration"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/jobcontroller"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/metrics/guard"
	"tensorstack.dev/batch/internal/queue"
	"tensorstack.dev/batch/internal/tensorboard"
	"tensorstack.dev/batch/internal/tensorboard/board"
	"tensorstack.dev/batch/internal/tensorboard/helper"
	"tensorstack.dev/batch/internal/tracing"
	"tensorstack.dev/batch/internal/version"
	"tensorstack.dev/batch/internal/webhook"
)

// The Lease and the events of the leader election. RBAC cannot restrict the verb create to one name.
//
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=t9k-system,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,resourceNames=t9k-operator,namespace=t9k-system,verbs=get;update
// +kubebuilder:rbac:groups="",resources=events,namespace=t9k-system,verbs=create

// The metrics server needs these permissions to authenticate and authorize requests.
//
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// options are the settings of one process.
type options struct {
	kubeconfig string
	namespace  string
	configFile string
	settings   configv1alpha1.OperatorConfiguration
	clock      clock.PassiveClock
	// spans is nil if the operator sends no traces.
	spans *tracing.Recorder
}

// NewCommand returns the command that runs the operator until its context ends.
func NewCommand() *cobra.Command {
	return NewCommandWithClock(clock.RealClock{})
}

// NewCommandWithClock is like NewCommand, but the controllers of jobs use the clock c, so that tests can change the
// time.
func NewCommandWithClock(c clock.PassiveClock) *cobra.Command {
	o := options{clock: c}
	cmd := &cobra.Command{
		Use:           "t9k-operator",
		Short:         "Run the controllers of TensorStack Batch",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version.Version,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.readSettings(); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	cmd.SetVersionTemplate(version.Line(cmd.Name()))
	f := cmd.Flags()
	// cobra handles this flag. The explicit definition keeps cobra from using the flag of the same name that
	// Kubernetes' packages define in t9k-local.
	f.Bool("version", false, "print the version and exit")
	f.StringVar(&o.configFile, "config", "", "configuration file, an OperatorConfiguration of "+configv1alpha1.GroupVersion+"; unset: the defaults")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "path of the kubeconfig; unset: $KUBECONFIG, or the ServiceAccount of the operator's pod")
	f.StringVar(&o.namespace, "namespace", podNamespace(), "namespace of the leader's Lease and of the webhook's Secret; unset: the pod's own")
	cmd.AddCommand(helper.NewProxyCommand(), helper.NewFetchCommand())
	cmd.CompletionOptions.DisableDefaultCmd = true
	klogFlags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(klogFlags)
	f.AddGoFlag(klogFlags.Lookup("v"))
	return cmd
}

// readSettings reads the configuration file, or the defaults if there is none.
func (o *options) readSettings() error {
	settings, err := configuration.FromFile(o.configFile, configuration.Operator)
	if err != nil {
		return err
	}
	o.settings = *settings
	return nil
}

// jobOptions returns the settings of the controllers of jobs.
func (o *options) jobOptions() jobcontroller.Options {
	c := &o.settings.Jobs
	return jobcontroller.Options{
		Engine: engine.Config{ForceDeleteAfter: c.ForceDeleteAfter.Duration, BackoffBase: c.RestartBackoff.Duration,
			BackoffMax: c.MaxRestartBackoff.Duration, MaxListed: int(*c.MaxListedReplicas), LogReadTime: c.LogReadTime.Duration},
		Limits:        o.limits(),
		ClusterDomain: c.ClusterDomain,
		Clock:         o.clock,
		Spans:         o.spans,
	}
}

// limits returns the limits against which every job is validated.
func (o *options) limits() kinds.Limits {
	return kinds.Limits{MaxReplicas: int(*o.settings.Jobs.MaxReplicas)}
}

// tensorBoardOptions returns the settings of the controller of TensorBoards.
func (o *options) tensorBoardOptions() tensorboard.Options {
	c := &o.settings.TensorBoards
	return tensorboard.Options{
		Board:    board.Settings{HelperImage: c.HelperImage, HelperCommand: c.HelperCommand, User: *c.User},
		Idleness: board.Idleness{After: c.IdleAfter.Duration, SuspendAfter: c.SuspendAfter.Duration},
	}
}

// run starts the operator and returns when ctx ends or the manager fails.
func (o *options) run(ctx context.Context) (err error) {
	ctrl.SetLogger(klog.Background())
	if o.spans, err = tracing.NewRecorder(ctx, o.settings.Tracing, "t9k-operator"); err != nil {
		return err
	}
	defer func() {
		if err := o.spans.Close(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot export the last spans")
		}
	}()
	config, err := o.restConfig()
	if err != nil {
		return err
	}
	if o.settings.Jobs.ClusterDomain == "" {
		o.settings.Jobs.ClusterDomain = detectClusterDomain("/etc/resolv.conf")
	}
	ready := &probes{}
	stop, err := ready.serve(ctx, o.settings.Health.BindAddress)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	mgr, err := o.awaitManager(ctx, config, ready)
	if err != nil || mgr == nil {
		return err
	}
	shapes, err := queue.NewShapes(mgr)
	if err != nil {
		return err
	}
	if err := o.addChecks(mgr, ready); err != nil {
		return err
	}
	if err := o.addParts(ctx, mgr, shapes, ready); err != nil {
		return err
	}
	if o.servesWebhook() {
		opts := webhook.Options{Address: o.settings.Webhook.BindAddress, Namespace: o.namespace, CertificateDir: o.settings.Webhook.CertDir, Limits: o.limits(), Shapes: shapes, AddReadyzCheck: ready.add}
		if err := webhook.Add(mgr, opts); err != nil {
			return err
		}
	}
	mgr.GetLogger().Info("Starting the operator", "version", version.Version, "configuration", o.configFile, "clusterDomain", o.settings.Jobs.ClusterDomain,
		"maxReplicas", *o.settings.Jobs.MaxReplicas, "webhook", o.servesWebhook(), "leaderElection", *o.settings.LeaderElection.Enabled)
	ready.set("crds", nil) // not earlier, because the other checks exist only now
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the controllers: %w", err)
	}
	return nil
}

// servesWebhook reports whether the admission webhooks are enabled.
func (o *options) servesWebhook() bool { return configuration.Serves(o.settings.Webhook.BindAddress) }

// restConfig returns the configuration of the clients of the API server.
func (o *options) restConfig() (*rest.Config, error) {
	var config *rest.Config
	var err error
	if o.kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	} else {
		config, err = ctrl.GetConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("loading the client configuration: %w", err)
	}
	// There is no client-side limit: API Priority and Fairness protects the API server, and a limit would delay large
	// jobs.
	config.QPS = -1
	config.UserAgent = "t9k-operator"
	countWrites(config)
	return config, nil
}

// awaitManager returns the controller manager as soon as the API server serves the kinds of jobs, which the manager's
// cache needs. If CRDs and operator are applied together, the operator starts before the API server serves the kinds.
// Until then the check "crds" of ready fails; the caller clears it once it has added all other checks. awaitManager
// returns nil if ctx ends first.
func (o *options) awaitManager(ctx context.Context, config *rest.Config, ready *probes) (manager.Manager, error) {
	ready.set("crds", errors.New("the operator has not checked yet whether the CRDs of jobs exist"))
	known := ""
	for {
		mgr, err := o.manager(config)
		if !meta.IsNoMatchError(err) {
			return mgr, err
		}
		ready.set("crds", fmt.Errorf("the operator waits for the CRDs of jobs: apply them: %w", err))
		if err.Error() != known {
			klog.FromContext(ctx).Info("The operator waits for the CRDs of jobs: apply them", "problem", err)
			known = err.Error()
		}
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(awaitCRDs):
		}
	}
}

// awaitCRDs is the interval at which the operator checks for the CRDs of jobs if they are missing.
const awaitCRDs = time.Second

// leaseDuration, renewDeadline and retryPeriod are the times of the leader election. A leader exits if it has not been
// able to renew its lease for renewDeadline. Another operator leads once it has seen no renewal for leaseDuration. The
// other operator reads the lease every 1 to 2.2 retryPeriods, and may notice both the last renewal and the end of the
// lease one such interval late. It therefore leads at most leaseDuration plus 4.4 retryPeriods after the last renewal.
// With the defaults of controller-runtime, that would be 24 s.
const (
	leaseDuration = 10 * time.Second
	renewDeadline = 7 * time.Second
	retryPeriod   = time.Second
)

// manager returns the controller manager without its controllers.
func (o *options) manager(config *rest.Config) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, batch.AddToScheme, scheduling.AddToScheme, tensorboardv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("registering types: %w", err)
		}
	}
	cacheOptions, err := jobcontroller.CacheOptions()
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(config, manager.Options{
		Scheme: scheme, Cache: cacheOptions,
		// CertDir is not set, so each operator makes its own certificate for the metrics.
		Metrics: metricsserver.Options{BindAddress: o.settings.Metrics.BindAddress, SecureServing: true,
			FilterProvider: guard.New},
		HealthProbeBindAddress:        "0", // package operator serves the probes
		LeaderElection:                *o.settings.LeaderElection.Enabled,
		LeaderElectionID:              "t9k-operator",
		LeaderElectionNamespace:       o.namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 new(leaseDuration),
		RenewDeadline:                 new(renewDeadline),
		RetryPeriod:                   new(retryPeriod),
	})
	if err != nil {
		return nil, fmt.Errorf("setting the controllers up: %w", err)
	}
	return mgr, nil
}

// addChecks adds the readiness checks of the caches and of the permissions of a manager to ready.
func (o *options) addChecks(mgr ctrl.Manager, ready *probes) error {
	ready.add("caches", func(req *http.Request) error {
		ctx, cancel := context.WithTimeout(req.Context(), time.Second/2) // kubelets wait for 1 s
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the caches have not synced with the API server yet")
		}
		return nil
	})
	return o.addPermissions(mgr, ready)
}

// podNamespace returns the namespace of the operator's own pod; empty outside of a pod.
func podNamespace() string {
	content, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

// detectClusterDomain returns the cluster's DNS domain from the resolv.conf of a pod; empty if the file cannot be read
// or its search list contains no such domain.
func detectClusterDomain(resolvConf string) string {
	content, err := os.ReadFile(resolvConf)
	if err != nil {
		return ""
	}
	for _, line := range strings.Split(string(content), "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "search" {
			continue
		}
		for _, w := range words[1:] {
			if domain, ok := strings.CutPrefix(w, "svc."); ok {
				return strings.TrimSuffix(domain, ".")
			}
		}
	}
	return ""
}
