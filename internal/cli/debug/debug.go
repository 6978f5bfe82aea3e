// Package debug implements "t9k debug", which switches the debug mode of jobs.
package debug

import (
	"errors"

	"github.com/spf13/cobra"

	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/runmode"
)

// Command returns the command "t9k debug".
func Command(p *kit.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "debug on|off JOB...",
		Short: "Start the pods of jobs with an idle command, for debugging",
		Long: `Switch debug mode on or off. In debug mode, containers run runMode.debug.replicaSpecs[].command ("sleep inf" by
default) instead of their own commands, in new pods. Finish rules do not apply. "exec" opens a shell in a pod.`,
		Example: p.Example("t9k debug on mnist", "t9k exec mnist -- sh", "t9k debug off mnist"),
		RunE: func(*cobra.Command, []string) error {
			return errors.New("write \"debug on JOB\" or \"debug off JOB\"")
		},
	}
	on := runmode.Command(p, &cobra.Command{
		Use:     "on JOB...",
		Short:   "Switch debug mode on",
		Example: p.Example("t9k debug on mnist"),
	}, runmode.Debug, true, runmode.Options{Done: "is going into debug mode", Already: "is in debug mode already"})
	off := runmode.Command(p, &cobra.Command{
		Use:     "off JOB...",
		Short:   "Switch debug mode off",
		Example: p.Example("t9k debug off mnist"),
	}, runmode.Debug, false, runmode.Options{Done: "is leaving debug mode", Already: "is not in debug mode"})
	cmd.AddCommand(on, off)
	return cmd
}
