// Package cli is the command line t9k, which runs, shows and controls jobs on any cluster. Each verb is a package below
// this one, package kit provides what they share, and this package assembles them. To add a verb, write a package with
// a function Command, and add a call of it to the function command.
package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"tensorstack.dev/batch/internal/cli/convert"
	"tensorstack.dev/batch/internal/cli/debug"
	"tensorstack.dev/batch/internal/cli/delete"
	"tensorstack.dev/batch/internal/cli/describe"
	"tensorstack.dev/batch/internal/cli/exec"
	"tensorstack.dev/batch/internal/cli/get"
	"tensorstack.dev/batch/internal/cli/history"
	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/local"
	"tensorstack.dev/batch/internal/cli/logs"
	"tensorstack.dev/batch/internal/cli/pause"
	"tensorstack.dev/batch/internal/cli/queue"
	"tensorstack.dev/batch/internal/cli/render"
	"tensorstack.dev/batch/internal/cli/rerun"
	"tensorstack.dev/batch/internal/cli/run"
	"tensorstack.dev/batch/internal/cli/scale"
	"tensorstack.dev/batch/internal/cli/sweep"
	"tensorstack.dev/batch/internal/cli/tensorboard"
	"tensorstack.dev/batch/internal/cli/top"
	"tensorstack.dev/batch/internal/cli/ui"
	"tensorstack.dev/batch/internal/cli/validate"
	"tensorstack.dev/batch/internal/cli/version"
	"tensorstack.dev/batch/internal/cli/view"
	build "tensorstack.dev/batch/internal/version"
)

// Main runs the program and returns its exit code. args is the command line, which begins with the program's name.
// Under the name kubectl-t9k, the program is a plug-in of kubectl.
func Main(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	program := strings.TrimSuffix(filepath.Base(args[0]), ".exe")
	p := kit.New(program, streams)
	root := command(p)
	root.SetArgs(completionArgs(program, args[1:]))
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = p.OutputError()
	}
	if err == nil {
		return 0
	}
	var exit *kit.ExitError
	if errors.As(err, &exit) {
		if exit.Err != nil {
			complain(p, exit.Err)
		}
		return exit.Code
	}
	if ctx.Err() != nil {
		return kit.ExitInterrupted
	}
	complain(p, err)
	return kit.ExitFailed
}

// complain prints an error. It escapes the text, which may contain control sequences from the cluster or from
// manifests.
func complain(p *kit.Program, err error) {
	fmt.Fprintln(p.ErrOut, "Error:", view.Escape(p.Named(kit.Explain(err))))
}

// completionArgs returns args. If kubectl calls the program for the completion of a plug-in, under the name
// kubectl_complete-PLUGIN, it returns the arguments of the completion command.
func completionArgs(program string, args []string) []string {
	if program == "kubectl_complete-t9k" {
		return append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	return args
}

// command builds the command tree.
func command(p *kit.Program) *cobra.Command {
	root := &cobra.Command{
		Use:   "t9k",
		Short: "Run batch and training jobs on Kubernetes",
		Long: `Run, watch and control the jobs of batch.tensorstack.dev on any Kubernetes cluster.

The command uses the cluster of the kubeconfig, as kubectl does. If there is no kubeconfig, it uses the embedded cluster
that "t9k local up" starts.

You name a job as NAME. If jobs of several kinds have the same name, use KIND/NAME: genericjob/mnist, gj/mnist.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: p.Name}
	root.Long = p.Named(root.Long)
	root.Version = build.Version
	root.SetVersionTemplate(build.Line(p.Name))
	root.Flags().Bool("version", false, "Print the version of this program")
	root.SetOut(p.Out)
	root.SetErr(p.ErrOut)
	root.SetIn(p.In)
	p.AddFlags(root)
	root.AddGroup(
		&cobra.Group{ID: "run", Title: "Run and watch jobs:"},
		&cobra.Group{ID: "steer", Title: "Control jobs:"},
		&cobra.Group{ID: "offline", Title: "Without a cluster:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			c.Long = p.Named(c.Long)
			root.AddCommand(c)
		}
	}
	add("run", run.Command(p), rerun.Command(p), sweep.Command(p), get.Command(p), describe.Command(p), logs.Command(p), tensorboard.Command(p), queue.Command(p),
		top.Command(p), ui.Command(p), history.Command(p))
	add("steer", pause.Command(p), pause.ResumeCommand(p), scale.Command(p), debug.Command(p), exec.Command(p), delete.Command(p))
	add("offline", validate.Command(p), render.Command(p), convert.Command(p), local.Command(p), version.Command(p))
	return root
}
