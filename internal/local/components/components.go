// Package components holds the programs that a cluster is made of: etcd, Kubernetes' own, and those of this
// repository. Apart from it, nothing of the embedded cluster imports k8s.io/kubernetes.
package components

import (
	"os"
	"runtime/debug"
	"time"

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

// startTime is how long a start takes at most where there is no hurry to collect garbage.
const startTime = 10 * time.Second

// collectRarely lets the heap grow for a while before garbage is collected. At a start much of it is made while the heap is
// small yet, so that the collector would hardly ever pause: it took a quarter of the API server's processor time. What it left
// goes at the end.
func collectRarely(d time.Duration) {
	if os.Getenv("GOGC") != "" {
		return // whoever sets it knows better
	}
	normal := debug.SetGCPercent(400)
	time.AfterFunc(d, func() {
		debug.SetGCPercent(normal)
		debug.FreeOSMemory()
	})
}

// Run runs the component called name with its own command-line arguments until it ends, and returns the exit code of
// the process; ok is false when there is no such component. It must be called at most once in a process.
func Run(name string, args []string) (code int, ok bool) {
	collectRarely(startTime)
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
