// Command t9k-scheduler schedules groups of pods all together or not at all, and all other pods as kube-scheduler does.
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
