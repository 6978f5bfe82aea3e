package consolecmd

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"tensorstack.dev/batch/internal/console/live"
	"tensorstack.dev/batch/internal/console/server"
	"tensorstack.dev/batch/internal/console/ticket"
)

// localOptions are the command-line settings of the console of the embedded cluster.
type localOptions struct {
	kubeconfig, address, keyFile, cluster string
}

// NewLocal returns the command that serves the console of the embedded cluster, with the rights of a kubeconfig, to
// browsers that open it with a token of a key.
func NewLocal() *cobra.Command {
	o := localOptions{}
	cmd := &cobra.Command{
		Use:           "console-server",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "path of the kubeconfig")
	f.StringVar(&o.address, "bind-address", "", "address of the console on 127.0.0.1")
	f.StringVar(&o.keyFile, "key-file", "", "file with the key of the tokens")
	f.StringVar(&o.cluster, "cluster-name", "", "name of the cluster on all pages")
	return cmd
}

func (o *localOptions) run(ctx context.Context) error {
	config, err := clientConfig(o.kubeconfig)
	if err != nil {
		return err
	}
	key, err := ticket.ReadKey(o.keyFile)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(o.address)
	if err != nil {
		return fmt.Errorf("reading the address: %w", err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return serve(ctx, config, func(cache *live.Cache) []endpoint {
		gate := server.NewKeyGate(key, "t9k local status", port, host, "localhost")
		console := server.New(server.Options{Cache: cache, Where: o.cluster, Admission: &server.Local{Gate: gate, Objects: objects, Core: core}})
		mux := http.NewServeMux()
		mux.Handle("/readyz", probes(cache))
		mux.Handle("/", console)
		return []endpoint{{what: "the console", address: o.address, handler: mux, end: console.Close}}
	})
}
