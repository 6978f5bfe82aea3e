package main

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"

	"github.com/spf13/cobra"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	ctrl "sigs.k8s.io/controller-runtime"

	"tensorstack.dev/batch/internal/operator"
	"tensorstack.dev/batch/internal/scheduler/schedulercmd"
	"tensorstack.dev/batch/internal/testing/kwok"
)

// parts are the parts of this program that run as separate processes, by the first argument of the process.
var parts = map[string]func() error{
	"kwok":           kwok.Run,
	"operator":       runProfiledOperator,
	"kube-scheduler": runScheduler(func() *cobra.Command { return app.NewSchedulerCommand() }),
	"t9k-scheduler":  runScheduler(schedulercmd.NewCommand),
}

// runScheduler returns a function that runs a scheduler with the command line's arguments, and profiles it if
// profileEnv is set.
func runScheduler(newCommand func() *cobra.Command) func() error {
	return func() error {
		dir := os.Getenv(profileEnv)
		if dir == "" {
			return newCommand().Execute()
		}
		return profiled(dir, newCommand().Execute)
	}
}

// profileEnv is the environment variable that names the directory for profiles.
const profileEnv = "PERF_PROFILE"

// runProfiledOperator runs the operator with the command line's arguments and profiles it. The operator has no flag for
// profiles.
func runProfiledOperator() error {
	return profiled(os.Getenv(profileEnv), func() error {
		return operator.NewCommand().ExecuteContext(ctrl.SetupSignalHandler())
	})
}

// profiled calls do and writes its CPU and heap profiles to the directory.
func profiled(dir string, do func() error) (err error) {
	cpu, err := os.Create(filepath.Join(dir, "cpu.pprof"))
	if err != nil {
		return err
	}
	defer cpu.Close()
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return err
	}
	defer func() {
		pprof.StopCPUProfile()
		err = errors.Join(err, writeHeap(filepath.Join(dir, "heap.pprof")))
	}()
	return do()
}

func writeHeap(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	runtime.GC()
	return pprof.WriteHeapProfile(f)
}
