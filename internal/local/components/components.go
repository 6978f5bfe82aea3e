// Package components holds the programs that a cluster is made of: etcd, Kubernetes' own, and those of this
// repository. Apart from it, nothing of the embedded cluster imports k8s.io/kubernetes.
package components

import (
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // registers the metrics of client-go
	_ "k8s.io/component-base/metrics/prometheus/version"  // registers the version metric
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"

	scheduler "tensorstack.dev/batch/internal/scheduler/plugin"
)

// commands makes each Cobra program of a cluster. Only the one that runs may be made: the constructors of Kubernetes
// install signal handlers and panic when a second one in the same process does.
var commands = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          scheduler.NewCommand,
	"kubelet":                 newKubeletCommand,
	"dns":                     newDNSCommand,
	"operator":                newOperatorCommand,
}

// Run runs the component called name with its own command-line arguments until it ends, and returns the exit code of
// the process; ok is false when there is no such component. It must be called at most once in a process.
func Run(name string, args []string) (code int, ok bool) {
	if name == "etcd" {
		os.Args = append([]string{"etcd"}, args...)
		etcdmain.Main(os.Args)
		return 0, true
	}
	newCommand, ok := commands[name]
	if !ok {
		return 0, false
	}
	cmd := newCommand()
	cmd.SetArgs(args)
	return cli.Run(cmd), true
}
