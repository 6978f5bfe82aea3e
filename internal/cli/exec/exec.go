// Package exec implements "t9k exec", which runs a command in a replica of a job.
package exec

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/selection"
	"tensorstack.dev/batch/internal/engine"
)

type options struct {
	selection.Options
	rank       int
	stdin, tty bool
}

// Command returns the command "t9k exec".
func Command(p *kit.Program) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "exec JOB [--role ROLE] [--rank RANK] -- COMMAND [ARG...]",
		Short: "Run a command in a replica of a job",
		Long: `Run a command in the main container of a replica: by default rank 0 of the first role. The exit code is the command's.
A job in debug mode keeps its pods alive for this.

On a terminal, the command gets a terminal too: "exec JOB -- sh" opens a shell. -t=false runs it without a terminal. If
the input or output is a file or a pipe, the command gets no terminal, and no input without -i.`,
		Example:           p.Example("t9k exec mnist -- nvidia-smi", "t9k exec mnist --role ps --rank 1 -- bash", "cat data | t9k exec -i mnist -- tar x"),
		Args:              execArgs,
		ValidArgsFunction: p.CompleteJobs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			// On a terminal, the command also gets a terminal, unless the flags say otherwise.
			interactive := kit.TerminalOf(p.In) != nil && kit.TerminalOf(p.Out) != nil
			if !cmd.Flags().Changed("tty") {
				o.tty = interactive
			}
			if !cmd.Flags().Changed("stdin") {
				o.stdin = interactive && o.tty
			}
			return execute(cmd.Context(), p, &o, args[0], args[1:])
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Role, "role", "", "Role of the replica; by default the first one")
	f.IntVar(&o.rank, "rank", 0, "Rank of the replica")
	f.StringVarP(&o.Container, "container", "c", "", "Container; by default the main one")
	f.BoolVarP(&o.stdin, "stdin", "i", false, "Pass standard input to the command; default: if the command gets a terminal")
	f.BoolVarP(&o.tty, "tty", "t", false, "Give the command a terminal; default: if input and output are a terminal")
	_ = cmd.RegisterFlagCompletionFunc("role", p.CompleteRoles)
	return cmd
}

func execArgs(cmd *cobra.Command, args []string) error {
	switch dash := cmd.ArgsLenAtDash(); {
	case len(args) == 0 || dash == 0:
		return kit.NeedJobs(cmd, nil)
	case dash < 0:
		return errors.New("write the command after a double dash: exec JOB -- COMMAND")
	case dash > 1:
		return fmt.Errorf("exec takes one job before the double dash, not %q: --role and --rank choose the replica", args[:dash])
	case len(args) == dash:
		return errors.New("write a command after the double dash: exec JOB -- sh")
	}
	return nil
}

func execute(ctx context.Context, p *kit.Program, o *options, address string, command []string) error {
	c, j, err := p.Find(ctx, address)
	if err != nil {
		return err
	}
	pod, container, err := replicaOf(j, o)
	if err != nil {
		return err
	}
	if err := runs(ctx, c, j, pod); err != nil {
		return err
	}
	t := kit.TerminalOf(p.In)
	tty := o.tty && t != nil
	if o.tty && t == nil {
		fmt.Fprintln(p.ErrOut, "Standard input is not a terminal, so the command gets no terminal.")
	}
	request := c.Core.RESTClient().Post().Resource("pods").Namespace(j.GetNamespace()).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: container, Command: command, Stdin: o.stdin, Stdout: true, Stderr: !tty, TTY: tty,
		}, scheme.ParameterCodec)
	executor, err := newExecutor(c, request.URL())
	if err != nil {
		return err
	}
	streams := remotecommand.StreamOptions{Stdout: kit.Raw(p.Out), Stderr: kit.Raw(p.ErrOut), Tty: tty}
	if o.stdin {
		streams.Stdin = p.In
	}
	if !tty {
		return result(executor.StreamWithContext(ctx, streams))
	}
	streams.Stderr = nil
	return t.Raw(ctx, func(sizes remotecommand.TerminalSizeQueue) error {
		streams.TerminalSizeQueue = sizes
		return result(executor.StreamWithContext(ctx, streams))
	})
}

// newExecutor returns an executor that uses WebSockets, or SPDY if the API server or a proxy does not support
// WebSockets.
func newExecutor(c *kit.Cluster, u *url.URL) (remotecommand.Executor, error) {
	spdy, err := remotecommand.NewSPDYExecutor(c.Config, "POST", u)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	socket, err := remotecommand.NewWebSocketExecutor(c.Config, "GET", u.String())
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	executor, err := remotecommand.NewFallbackExecutor(socket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return executor, nil
}

// result returns a kit.ExitError if the command ran and has ended with an exit code other than 0. It returns any other
// error unchanged.
func result(err error) error {
	var exit utilexec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return &kit.ExitError{Code: exit.ExitStatus()}
	}
	return err
}

// replicaOf returns the pod and the container that the flags select.
func replicaOf(j *kit.Job, o *options) (pod, container string, err error) {
	normal, err := j.Normal()
	if err != nil {
		return "", "", fmt.Errorf("reading %s: %w", j.Ref(), err)
	}
	sel, err := selection.New(j, o.Options)
	if err != nil {
		return "", "", err
	}
	r := sel.Roles[0]
	switch {
	case r.Replicas == 0:
		return "", "", fmt.Errorf("role %q has no replicas", r.Name)
	case o.rank < 0 || o.rank >= r.Replicas:
		return "", "", fmt.Errorf("rank %d is out of range: role %q has ranks 0 to %d", o.rank, r.Name, r.Replicas-1)
	}
	return engine.ReplicaName(normal.Name, r.Name, o.rank), r.Container, nil
}

// runs returns an error that explains why commands cannot run in a pod. It returns nil if the pod runs, or if the user
// may not get the pod.
func runs(ctx context.Context, c *kit.Cluster, j *kit.Job, pod string) error {
	p, err := c.Core.Pods(j.GetNamespace()).Get(ctx, pod, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no pod %s: %s is %s", pod, j.Ref(), kit.OrNotStarted(j.Status().Phase))
	case apierrors.IsForbidden(err): // a user without the right to get pods can still have the right to run commands
		return nil
	case err != nil:
		return fmt.Errorf("getting pod %s: %w", pod, err)
	case p.Status.Phase != corev1.PodRunning:
		return fmt.Errorf("pod %s does not run: it is %s", pod, kit.OrNotStarted(p.Status.Phase))
	}
	return nil
}
