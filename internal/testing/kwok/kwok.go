// Package kwok turns a test or benchmark program into the controller of KWOK, which simulates nodes.
package kwok

import (
	"fmt"

	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/kwok/cmd"
	"sigs.k8s.io/kwok/pkg/log"
)

// Run runs the controller with the program's command-line arguments until the process receives a signal. It replaces
// the program's flags.
func Run() error {
	shared := pflag.NewFlagSet("kwok", pflag.ContinueOnError)
	shared.ParseErrorsAllowlist.UnknownFlags = true
	ctx, _ := log.InitFlags(ctrl.SetupSignalHandler(), shared)
	ctx, err := config.InitFlags(ctx, shared)
	if err != nil {
		return fmt.Errorf("reading the configuration of KWOK: %w", err)
	}
	// The scheduler's packages define a flag "version" that KWOK's command would mistake for its own.
	pflag.CommandLine = pflag.NewFlagSet("kwok", pflag.ContinueOnError)
	command := cmd.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(shared)
	return command.ExecuteContext(ctx)
}
