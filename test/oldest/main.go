// Command oldest contains etcd, the API server and the controller manager of the oldest supported version of
// Kubernetes, as t9k-local contains those of the newest. `make test-oldest` builds it and runs tests on it.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // registers the metrics of client-go
	_ "k8s.io/component-base/metrics/prometheus/version"  // registers the version metric
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

// commands holds the constructors of the programs by name. A process may call only one of them.
var commands = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: oldest etcd|kube-apiserver|kube-controller-manager [flags]")
		os.Exit(2)
	}
	if os.Args[1] == "etcd" {
		os.Args = append([]string{"etcd"}, os.Args[2:]...)
		etcdmain.Main(os.Args)
		return
	}
	newCommand, ok := commands[os.Args[1]]
	if !ok {
		fmt.Fprintf(os.Stderr, "oldest: there is no program %q\n", os.Args[1])
		os.Exit(2)
	}
	cmd := newCommand()
	cmd.SetArgs(os.Args[2:])
	os.Exit(cli.Run(cmd))
}
