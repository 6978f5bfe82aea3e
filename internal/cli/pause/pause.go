// Package pause implements "t9k pause" and "t9k resume", which pause and resume jobs.
package pause

import (
	"github.com/spf13/cobra"

	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/runmode"
)

// Command returns the command "t9k pause".
func Command(p *kit.Program) *cobra.Command {
	return runmode.Command(p, &cobra.Command{
		Use:   "pause JOB...",
		Short: "Terminate the pods of jobs and keep the jobs",
		Long: `Terminate the pods of jobs, each with its own grace period, and keep the jobs with their restart counts. "resume" starts
the pods again. The command returns when the API server has accepted the request; "get JOB --watch" shows how the pods
terminate.`,
		Example: p.Example("t9k pause mnist", "t9k pause -l team=vision", "t9k pause --all"),
	}, runmode.Pause, true, runmode.Options{Done: "is pausing", Already: "is paused already"})
}

// ResumeCommand returns the command "t9k resume".
func ResumeCommand(p *kit.Program) *cobra.Command {
	return runmode.Command(p, &cobra.Command{
		Use:        "resume JOB...",
		SuggestFor: []string{"unpause"},
		Short:      "Start the pods of paused jobs again",
		Long: `Start the pods of paused jobs again, as runMode.pause.resumeSpecs specifies.
The command returns when the API server has accepted the request; "get JOB --watch" shows how the pods start.`,
		Example: p.Example("t9k resume mnist", "t9k resume --all"),
	}, runmode.Pause, false, runmode.Options{Done: "is resuming", Already: "is not paused"})
}
