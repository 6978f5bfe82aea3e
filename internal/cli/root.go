// Package cli is the command line t9k: it runs, shows and steers jobs on any cluster. Each verb is a file.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"tensorstack.dev/batch/internal/cli/view"
)

// Exit codes other than 0.
const (
	exitFailed = 1
	// exitInterrupted is what shells expect of a program that Ctrl-C has ended.
	exitInterrupted = 130
)

// exitError ends the program with a code. Without an error, all has been said already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// Main runs the program whose command line is args, the name it was called by first, and returns its exit code. Called as
// kubectl-t9k it is a plug-in of kubectl.
func Main(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	program := strings.TrimSuffix(filepath.Base(args[0]), ".exe")
	a := newApp(program, streams)
	root := a.command()
	root.SetArgs(completionArgs(program, args[1:]))
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	var exit *exitError
	if errors.As(err, &exit) {
		if exit.err != nil {
			a.complain(exit.err)
		}
		return exit.code
	}
	if ctx.Err() != nil {
		return exitInterrupted
	}
	a.complain(err)
	return exitFailed
}

// complain tells of an error. What is in it may come from anywhere.
func (a *app) complain(err error) {
	fmt.Fprintln(a.ErrOut, "Error:", view.Escape(a.named(explain(err))))
}

// completionArgs serves kubectl's completion of its plug-ins, which calls a program named kubectl_complete-PLUGIN.
func completionArgs(program string, args []string) []string {
	if program == "kubectl_complete-t9k" {
		return append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	return args
}

// app is what the verbs share.
type app struct {
	genericiooptions.IOStreams
	// name is how the program is called in help texts: "t9k" or "kubectl t9k".
	name  string
	flags *genericclioptions.ConfigFlags
	// local names the embedded cluster to use; empty to follow the kubeconfig.
	local string
	// kubeconfig is the file that was named on the command line.
	kubeconfig string
}

// newApp is the program as it was called.
func newApp(program string, streams genericiooptions.IOStreams) *app {
	streams.Out, streams.ErrOut = safeWriter{streams.Out}, safeWriter{streams.ErrOut}
	a := &app{IOStreams: streams, name: "t9k", flags: genericclioptions.NewConfigFlags(true)}
	if isPlugin(program) {
		a.name = "kubectl t9k"
	}
	return a
}

// command builds the command tree.
func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "t9k",
		Short: "Run batch and training jobs on Kubernetes",
		Long: `Run, watch and steer the jobs of batch.tensorstack.dev on any Kubernetes cluster.

The cluster is that of the kubeconfig, as for kubectl. Where no kubeconfig is set up and the embedded cluster of
"t9k local up" runs, it is that one.

A job is addressed by NAME or, where jobs of several kinds have the same name, by KIND/NAME: genericjob/mnist, gj/mnist.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: a.name}
	root.Long = a.named(root.Long)
	root.SetOut(a.Out)
	root.SetErr(a.ErrOut)
	root.SetIn(a.In)
	a.addFlags(root)
	root.AddGroup(
		&cobra.Group{ID: "run", Title: "Run and watch jobs:"},
		&cobra.Group{ID: "steer", Title: "Steer jobs:"},
		&cobra.Group{ID: "offline", Title: "Without a cluster:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			c.Long = a.named(c.Long)
			root.AddCommand(c)
		}
	}
	add("run", a.runCommand(), a.getCommand(), a.describeCommand(), a.logsCommand(), a.tensorBoardCommand(), a.queueCommand())
	add("steer", a.pauseCommand(), a.resumeCommand(), a.scaleCommand(), a.debugCommand(), a.execCommand(), a.deleteCommand())
	add("offline", a.validateCommand(), a.renderCommand(), a.convertCommand(), a.localCommand(), a.versionCommand())
	return root
}

// addFlags adds the flags that say which cluster is meant. Those of kubectl that few people set are there but not listed.
func (a *app) addFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	a.flags.AddFlags(flags)
	shown := map[string]bool{"kubeconfig": true, "context": true, "namespace": true}
	flags.VisitAll(hideUnless(shown))
	flags.StringVar(&a.local, "local", "", "Use the embedded cluster of this name, whatever the kubeconfig says (default name: default)")
	flags.Lookup("local").NoOptDefVal = defaultLocal
	_ = root.RegisterFlagCompletionFunc("namespace", a.completeNamespaces)
	_ = root.RegisterFlagCompletionFunc("context", a.completeContexts)
}

// isPlugin tells whether kubectl calls a program of this name as its plug-in, or to complete that one's command line.
func isPlugin(program string) bool {
	return strings.HasPrefix(program, "kubectl-") || strings.HasPrefix(program, "kubectl_complete-")
}

// named calls the program by its name in a text that says "t9k VERB".
func (a *app) named(text string) string {
	return callsItself.ReplaceAllString(text, "${1}"+a.name+" ")
}

var callsItself = regexp.MustCompile(`(^|["\s])t9k `)

// example indents the examples of a help text and calls the program by its name.
func (a *app) example(lines ...string) string {
	for i, l := range lines {
		lines[i] = "  " + a.named(l)
	}
	return strings.Join(lines, "\n")
}

// open opens a manifest, "-" being standard input, and gives it a name for messages.
func (a *app) open(name string) (io.ReadCloser, string, error) {
	if name == "-" {
		return io.NopCloser(a.In), "stdin", nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, "", fmt.Errorf("opening the manifest: %w", err)
	}
	return f, name, nil
}
