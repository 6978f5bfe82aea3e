package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	ctrl "sigs.k8s.io/controller-runtime"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwokcmd "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"

	"tensorstack.dev/batch/internal/operator"
	"tensorstack.dev/batch/internal/scheduler/plugin"
)

// parts are what this program runs as processes of its own, by its first argument.
var parts = map[string]func() error{
	"kwok":           runKWOK,
	"operator":       runProfiledOperator,
	"kube-scheduler": runScheduler(func() *cobra.Command { return app.NewSchedulerCommand() }),
	"t9k-scheduler":  runScheduler(plugin.NewCommand),
}

// runKWOK runs the controller of KWOK with the command line's arguments.
func runKWOK() error {
	shared := pflag.NewFlagSet("kwok", pflag.ContinueOnError)
	shared.ParseErrorsAllowlist.UnknownFlags = true
	ctx, _ := kwoklog.InitFlags(ctrl.SetupSignalHandler(), shared)
	ctx, err := kwokconfig.InitFlags(ctx, shared)
	if err != nil {
		return fmt.Errorf("reading the configuration of KWOK: %w", err)
	}
	// The scheduler's packages have a flag "version" of their own there, which is not what KWOK's command takes it for.
	pflag.CommandLine = pflag.NewFlagSet("kwok", pflag.ContinueOnError)
	cmd := kwokcmd.NewCommand(ctx)
	cmd.PersistentFlags().AddFlagSet(shared)
	return cmd.ExecuteContext(ctx)
}

// runScheduler runs a scheduler with the command line's arguments, and profiles it if that is asked for.
func runScheduler(newCommand func() *cobra.Command) func() error {
	return func() error {
		dir := os.Getenv(profileEnv)
		if dir == "" {
			return newCommand().Execute()
		}
		return profiled(dir, newCommand().Execute)
	}
}

// profileEnv names the directory to which the profiles of the operator go.
const profileEnv = "PERF_PROFILE"

// runProfiledOperator runs the operator with the command line's arguments and profiles it. The operator itself has no
// switch for that.
func runProfiledOperator() error {
	return profiled(os.Getenv(profileEnv), func() error { return operator.NewCommand().ExecuteContext(ctrl.SetupSignalHandler()) })
}

// profiled writes profiles of what something does to a directory.
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
