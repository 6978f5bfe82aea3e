// Command t9k-scheduler schedules the pods of a group together, at least its minimum number of pods or none, and all
// other pods like kube-scheduler.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // registers the metrics of client-go
	_ "k8s.io/component-base/metrics/prometheus/version"  // registers the version metric

	"tensorstack.dev/batch/internal/scheduler/schedulercmd"
)

func main() {
	os.Exit(cli.Run(schedulercmd.NewCommand()))
}
