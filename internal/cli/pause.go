package cli

import "github.com/spf13/cobra"

func (a *app) pauseCommand() *cobra.Command {
	return a.steerCommand(&cobra.Command{
		Use:   "pause JOB...",
		Short: "End the pods of jobs and keep the jobs",
		Long: `End the pods of jobs, each with its own grace period, and keep the jobs. Restart counts are kept. "resume" goes on.
The command returns when the cluster has taken the request; "get JOB --watch" shows the pods end.`,
		Example: a.example("t9k pause mnist"),
	}, pauseSwitch, true, steerOptions{done: "is pausing", already: "is paused already"})
}

func (a *app) resumeCommand() *cobra.Command {
	return a.steerCommand(&cobra.Command{
		Use:        "resume JOB...",
		SuggestFor: []string{"unpause"},
		Short:      "Start the pods of paused jobs again",
		Long: `Start the pods of paused jobs again, as their runMode.pause.resumeSpecs say.
The command returns when the cluster has taken the request; "get JOB --watch" shows the pods start.`,
		Example: a.example("t9k resume mnist"),
	}, pauseSwitch, false, steerOptions{done: "is resuming", already: "is not paused"})
}
