package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"

	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwokcmd "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"

	"tensorstack.dev/batch/internal/operator"
)

// parts are what this program runs as processes of its own, by its first argument.
var parts = map[string]func() error{
	"kwok":     runKWOK,
	"operator": runProfiledOperator,
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
	cmd := kwokcmd.NewCommand(ctx)
	cmd.PersistentFlags().AddFlagSet(shared)
	return cmd.ExecuteContext(ctx)
}

// profileEnv names the directory to which the profiles of the operator go.
const profileEnv = "PERF_PROFILE"

// runProfiledOperator runs the operator with the command line's arguments and profiles it. The operator itself has no
// switch for that.
func runProfiledOperator() (err error) {
	dir := os.Getenv(profileEnv)
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
	return operator.NewCommand().ExecuteContext(ctrl.SetupSignalHandler())
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
