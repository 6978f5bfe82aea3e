// Package consolecmd assembles the t9k-console, the console of an installation. It makes no decisions of its own. Start
// reading at New.
package consolecmd

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	configv1alpha1 "tensorstack.dev/batch/api/config/v1alpha1"
	"tensorstack.dev/batch/internal/configuration"
	"tensorstack.dev/batch/internal/console/access"
	"tensorstack.dev/batch/internal/console/live"
	"tensorstack.dev/batch/internal/console/server"
	"tensorstack.dev/batch/internal/version"
)

// options are the settings of one process.
type options struct {
	kubeconfig string
	configFile string
	settings   *configv1alpha1.ConsoleConfiguration
}

// archiveEnv is the environment variable with the address of the archive. Its value can come from a Secret, unlike the
// configuration file, so the address may contain a password.
const archiveEnv = "T9K_ARCHIVE"

// New returns the command that serves the console until its context ends.
func New() *cobra.Command {
	o := options{}
	cmd := &cobra.Command{
		Use:           "t9k-console",
		Short:         "Serve the console of TensorStack Batch",
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
	f.Bool("version", false, "print the version and exit")
	f.StringVar(&o.configFile, "config", "", "configuration file, a ConsoleConfiguration of "+configv1alpha1.GroupVersion+"; unset: the defaults")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "path of the kubeconfig; unset: the ServiceAccount of the console's pod")
	cmd.CompletionOptions.DisableDefaultCmd = true
	klogFlags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(klogFlags)
	f.AddGoFlag(klogFlags.Lookup("v"))
	return cmd
}

// readSettings reads the configuration file, if there is one, and the environment.
func (o *options) readSettings() (err error) {
	if o.settings, err = configuration.FromFile(o.configFile, configuration.Console); err != nil {
		return err
	}
	if o.settings.Archive.Address == "" {
		o.settings.Archive.Address = os.Getenv(archiveEnv)
	}
	return nil
}

// run serves the console and returns when ctx ends or a server fails.
func (o *options) run(ctx context.Context) error {
	ctrl.SetLogger(klog.Background())
	config, err := clientConfig(o.kubeconfig)
	if err != nil {
		return err
	}
	m := newMeters()
	admission, err := o.admission(config, m)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	kept, err := record(ctx, config, &o.settings.Archive)
	if err != nil {
		return err
	}
	defer kept.close(ctx)
	defer stop() // if a server fails, the recorder stops too
	metrics, err := o.metrics(config, m, kept)
	if err != nil {
		return err
	}
	review, err := o.reviewPermissions(config)
	if err != nil {
		return err
	}
	var reviewing sync.WaitGroup
	reviewing.Go(func() { review.Run(ctx) })
	defer reviewing.Wait()
	defer stop()
	s := o.settings
	return serve(ctx, config, func(cache *live.Cache) []endpoint {
		console := server.New(server.Options{Cache: cache, Where: s.ClusterName, Admission: admission, API: kept.handler(callerMay), History: kept.history()})
		pages := endpoint{what: "the console", address: s.Server.BindAddress, handler: m.measured(console), end: console.Close}
		if dir := s.Server.CertDir; dir != "" {
			pages.cert, pages.key = filepath.Join(dir, corev1.TLSCertKey), filepath.Join(dir, corev1.TLSPrivateKeyKey)
		}
		ready := probes(settled(cache.Settled(), kept.settled()), review.Problem)
		return []endpoint{pages, metrics, {what: "/healthz and /readyz", address: s.Health.BindAddress, handler: ready}}
	})
}

// metrics returns the endpoint that serves /metrics over HTTPS. It has no handler if metrics are disabled.
func (o *options) metrics(config *rest.Config, m *meters, kept *kept) (endpoint, error) {
	e := endpoint{what: "/metrics", address: o.settings.Metrics.BindAddress}
	if !configuration.Serves(e.address) {
		return e, nil
	}
	err := kept.collect(m.registry)
	if err == nil {
		e.handler, err = m.handler(config)
	}
	if err == nil {
		e.own, err = selfSigned()
	}
	return e, err
}

// admission returns the Admission of the console, with the sign-in if one is configured.
func (o *options) admission(config *rest.Config, m *meters) (*access.Admission, error) {
	core, err := kubernetes.NewForConfig(m.countReviews(config))
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	a := &access.Admission{Reviews: &access.Reviews{Client: core, TTL: o.settings.AccessCacheTime.Duration}, Config: config}
	for _, text := range o.settings.Server.URLs {
		u, err := url.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("reading the addresses of the console: %w", err)
		}
		a.URLs = append(a.URLs, u)
	}
	if o.settings.SignIn != nil {
		if a.SignIn, err = newSignIn(o.settings.SignIn, a.Reviews, o.settings.ClusterName); err != nil {
			return nil, err
		}
	}
	return a, nil
}
