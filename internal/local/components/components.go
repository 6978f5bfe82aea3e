// Package components contains the programs of a cluster: etcd, the Kubernetes components, and this repository's own
// programs. It is the only part of the embedded cluster that imports k8s.io/kubernetes.
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
	kubescheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"

	"tensorstack.dev/batch/internal/scheduler/schedulercmd"
)

// commands are the constructors of the Cobra programs, by the name that Run gets. Run calls only the constructor that
// it needs, because Kubernetes' constructors install signal handlers, and a second installation in a process panics.
var commands = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          schedulercmd.NewCommand,
	"plain-kube-scheduler":    newPlainScheduler,
	"kubelet":                 newKubeletCommand,
	"dns":                     newDNSCommand,
	"operator":                newOperatorCommand,
	"console-server":          newConsoleCommand,
}

// newPlainScheduler returns Kubernetes' own scheduler, without the plugin of the t9k-scheduler.
func newPlainScheduler() *cobra.Command { return kubescheduler.NewSchedulerCommand() }

// maxStartTime is how long after the start of a component its garbage collector runs less often. A start should not
// take longer.
const maxStartTime = 10 * time.Second

// collectRarely lets the heap grow further than usual before each garbage collection until d has passed, and then frees
// the garbage. During a start the heap is small and fills quickly, and collections at the default rate take a quarter
// of the API server's CPU time.
func collectRarely(d time.Duration) {
	if os.Getenv("GOGC") != "" {
		return // an explicit setting takes precedence
	}
	normal := debug.SetGCPercent(400)
	time.AfterFunc(d, func() {
		debug.SetGCPercent(normal)
		debug.FreeOSMemory()
	})
}

// Run runs the component called name with its command-line arguments and returns the exit code for the process. ok is
// false if there is no component of this name. Run must be called at most once in a process.
func Run(name string, args []string) (code int, ok bool) {
	collectRarely(maxStartTime)
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
