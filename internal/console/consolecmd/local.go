package consolecmd

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"tensorstack.dev/batch/internal/console/access"
	"tensorstack.dev/batch/internal/console/live"
	"tensorstack.dev/batch/internal/console/server"
	"tensorstack.dev/batch/internal/console/ticket"
	"tensorstack.dev/batch/internal/tensorboard/forward"
)

// localOptions are the settings of the console of the embedded cluster.
type localOptions struct {
	options
	keyFile, archiveAddress, certFile, certKeyFile, clientCAFile string
}

// NewLocal returns the command that serves the console of the embedded cluster with the rights of a kubeconfig. The
// console admits browsers that open it with a token of package ticket.
func NewLocal() *cobra.Command {
	o := localOptions{}
	cmd := &cobra.Command{
		Use:           "console-server",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.readSettings(); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.configFile, "config", "", "configuration file of the console")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "path of the kubeconfig")
	f.StringVar(&o.keyFile, "key-file", "", "file with the key of the tokens")
	f.StringVar(&o.archiveAddress, "archive-bind-address", "", "address on 127.0.0.1 of the archive for clients with credentials of the cluster")
	f.StringVar(&o.certFile, "tls-cert-file", "", "certificate of that address")
	f.StringVar(&o.certKeyFile, "tls-private-key-file", "", "key of the certificate")
	f.StringVar(&o.clientCAFile, "client-ca-file", "", "certificate authority of the users of the cluster")
	return cmd
}

func (o *localOptions) run(ctx context.Context) error {
	ctrl.SetLogger(klog.Background())
	config, err := clientConfig(o.kubeconfig)
	if err != nil {
		return err
	}
	key, err := ticket.ReadKey(o.keyFile)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(o.settings.Server.BindAddress)
	if err != nil {
		return fmt.Errorf("reading the address: %w", err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	kept, err := record(ctx, config, &o.settings.Archive)
	if err != nil {
		return err
	}
	defer kept.close(ctx)
	defer stop() // if a server fails, the recorder stops too
	return serve(ctx, config, func(cache *live.Cache) []endpoint {
		gate := server.NewKeyGate(key, "t9k local status", port, host)
		console := server.New(server.Options{Cache: cache, Where: o.settings.ClusterName, Admission: &server.Local{Gate: gate, Objects: objects, Core: client.CoreV1()},
			Boards: forward.NewBoards(&forward.Client{Config: config, Objects: objects, Core: client.CoreV1(), Manager: "t9k"}),
			API:    kept.handler(callerMay), History: kept.history()})
		mux := http.NewServeMux()
		mux.Handle("/readyz", probes(settled(cache.Settled(), kept.settled())))
		mux.Handle("/", console)
		endpoints := []endpoint{{what: "the console", address: o.settings.Server.BindAddress, handler: mux, end: console.Close}}
		if history := kept.handler(clusterUsers(&access.Reviews{Client: client, TTL: o.settings.AccessCacheTime.Duration})); history != nil {
			endpoints = append(endpoints, endpoint{what: "the archive", address: o.archiveAddress, cert: o.certFile, key: o.certKeyFile, clients: o.clientCAFile, handler: history})
		}
		return endpoints
	})
}
