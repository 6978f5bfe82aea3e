// Package consolecmd assembles the t9k-console, the console of an installation, and contains no decisions of its own. Start
// reading at New.
package consolecmd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"tensorstack.dev/batch/internal/archive/store"
	"tensorstack.dev/batch/internal/console/access"
	"tensorstack.dev/batch/internal/console/live"
	"tensorstack.dev/batch/internal/console/server"
	"tensorstack.dev/batch/internal/version"
)

// options are the command-line settings.
type options struct {
	kubeconfig      string
	address         string
	probeAddress    string
	certFile        string
	keyFile         string
	urls            []string
	clusterName     string
	accessCacheTime time.Duration
	signIn          signInOptions
	archive         string
	limits          store.Options
}

// archiveEnv is the environment variable with the address of the archive. Others cannot see it, unlike an argument.
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
		RunE:          func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	cmd.SetVersionTemplate(version.Line(cmd.Name()))
	f := cmd.Flags()
	f.Bool("version", false, "print the version and exit")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "path of the kubeconfig; unset: the ServiceAccount of the console's pod")
	f.StringVar(&o.address, "bind-address", ":8080", "address of the console")
	f.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz")
	f.StringVar(&o.certFile, "tls-cert-file", "", "certificate for HTTPS; unset: HTTP, for a proxy that ends TLS")
	f.StringVar(&o.keyFile, "tls-private-key-file", "", "key of the certificate")
	f.StringSliceVar(&o.urls, "url", nil, "address under which browsers reach the console, such as https://console.example.org; can be repeated; unset: any")
	f.StringVar(&o.clusterName, "cluster-name", "", "name of the cluster on all pages")
	f.DurationVar(&o.accessCacheTime, "access-cache-time", 10*time.Second, "time for which the console keeps what it has asked the API server about users and their rights")
	o.signIn.flags(f)
	f.StringVar(&o.archive, "archive", os.Getenv(archiveEnv), "archive of jobs: path of a file, or address of a PostgreSQL database such as postgres://t9k@db.example.org/t9k, whose password PGPASSWORD may hold; unset: what the variable "+archiveEnv+" says; none without it")
	f.Lookup("archive").DefValue = "" // it may hold a password
	f.Int64Var(&o.limits.JobLogs, "archive-job-logs", store.DefaultJobLogs, "largest size of the logs that the archive keeps of one job, in bytes; the oldest go first")
	f.Int64Var(&o.limits.AllLogs, "archive-logs", store.DefaultAllLogs, "largest size of all logs that the archive keeps, in bytes; the oldest go first")
	cmd.CompletionOptions.DisableDefaultCmd = true
	klogFlags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(klogFlags)
	f.AddGoFlag(klogFlags.Lookup("v"))
	return cmd
}

// run serves the console and returns when ctx ends or a server fails.
func (o *options) run(ctx context.Context) error {
	config, err := clientConfig(o.kubeconfig)
	if err != nil {
		return err
	}
	admission, err := o.admission(config)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	kept, err := record(ctx, config, o.archive, o.limits)
	if err != nil {
		return err
	}
	defer kept.close(ctx)
	defer stop() // a server that fails ends the recording too
	return serve(ctx, config, func(cache *live.Cache) []endpoint {
		console := server.New(server.Options{Cache: cache, Where: o.clusterName, Admission: admission, API: kept.handler(callerMay), History: kept.history()})
		return []endpoint{
			{what: "the console", address: o.address, cert: o.certFile, key: o.keyFile, handler: console, end: console.Close},
			{what: "/healthz and /readyz", address: o.probeAddress, handler: probes(cache.Settled(), kept.settled())},
		}
	})
}

func (o *options) admission(config *rest.Config) (*access.Admission, error) {
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	a := &access.Admission{Reviews: &access.Reviews{Client: core, TTL: o.accessCacheTime}, Config: config}
	for _, text := range o.urls {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || (u.Path != "" && u.Path != "/") {
			return nil, fmt.Errorf("--url %q is no address such as https://console.example.org", text)
		}
		a.URLs = append(a.URLs, u)
	}
	if a.SignIn, err = o.signIn.new(a.Reviews, len(a.URLs) > 0, o.clusterName); err != nil {
		return nil, err
	}
	if (o.certFile == "") != (o.keyFile == "") {
		return nil, errors.New("--tls-cert-file and --tls-private-key-file need each other")
	}
	if o.accessCacheTime <= 0 {
		return nil, errors.New("--access-cache-time must be more than 0")
	}
	return a, nil
}
