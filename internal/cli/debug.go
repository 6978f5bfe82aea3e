package cli

import (
	"errors"

	"github.com/spf13/cobra"
)

func (a *app) debugCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "debug on|off JOB...",
		Short: "Start the pods of jobs with an idle command, to look around in them",
		Long: `Switch debug mode: the pods are replaced by ones whose containers run runMode.debug.replicaSpecs[].command, by default
"sleep inf", instead of their own. Finish rules do not apply meanwhile. "exec" opens a shell in one of them.`,
		Example: a.example("t9k debug on mnist", "t9k exec mnist -- sh", "t9k debug off mnist"),
		RunE: func(*cobra.Command, []string) error {
			return errors.New("write \"debug on JOB\" or \"debug off JOB\"")
		},
	}
	on := a.steerCommand(&cobra.Command{
		Use:     "on JOB...",
		Short:   "Switch debug mode on",
		Example: a.example("t9k debug on mnist"),
	}, debugSwitch, true, steerOptions{done: "is going into debug mode", already: "is in debug mode already"})
	off := a.steerCommand(&cobra.Command{
		Use:     "off JOB...",
		Short:   "Switch debug mode off",
		Example: a.example("t9k debug off mnist"),
	}, debugSwitch, false, steerOptions{done: "is leaving debug mode", already: "is not in debug mode"})
	cmd.AddCommand(on, off)
	return cmd
}
