package cli

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

	"tensorstack.dev/batch/internal/engine"
)

type execOptions struct {
	role       string
	rank       int
	container  string
	stdin, tty bool
}

func (a *app) execCommand() *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec JOB [--role ROLE] [--rank RANK] -- COMMAND [ARG...]",
		Short: "Run a command in a replica of a job",
		Long: `Run a command in the main container of a replica: by default rank 0 of the first role. The exit code is the command's.
A job in debug mode keeps its pods alive for this.

Called on a terminal, the command gets a terminal too: "exec JOB -- sh" opens a shell. -t=false runs it without one. Where
input or output is a file or a pipe, the command gets neither a terminal nor, without -i, any input.`,
		Example:           a.example("t9k exec mnist -- nvidia-smi", "t9k exec mnist --role ps --rank 1 -- bash", "cat data | t9k exec -i mnist -- tar x"),
		Args:              execArgs,
		ValidArgsFunction: a.completeJobs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			// On a terminal a command gets one too, unless the flags say otherwise.
			interactive := terminalOf(a.In) != nil && terminalOf(a.Out) != nil
			if !cmd.Flags().Changed("tty") {
				o.tty = interactive
			}
			if !cmd.Flags().Changed("stdin") {
				o.stdin = interactive && o.tty
			}
			return a.exec(cmd.Context(), &o, args[0], args[1:])
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.role, "role", "", "Role of the replica; by default the first one")
	f.IntVar(&o.rank, "rank", 0, "Rank of the replica")
	f.StringVarP(&o.container, "container", "c", "", "Container; by default the main one")
	f.BoolVarP(&o.stdin, "stdin", "i", false, "Pass standard input to the command; the default where it gets a terminal")
	f.BoolVarP(&o.tty, "tty", "t", false, "Give the command a terminal; the default on a terminal")
	_ = cmd.RegisterFlagCompletionFunc("role", a.completeRoles)
	return cmd
}

func execArgs(cmd *cobra.Command, args []string) error {
	switch dash := cmd.ArgsLenAtDash(); {
	case len(args) == 0 || dash == 0:
		return needJobs(cmd, nil)
	case dash < 0:
		return errors.New("write the command behind a double dash: exec JOB -- COMMAND")
	case dash > 1:
		return fmt.Errorf("exec takes one job before the double dash, not %q: --role and --rank choose the replica", args[:dash])
	case len(args) == dash:
		return errors.New("write a command behind the double dash: exec JOB -- sh")
	}
	return nil
}

func (a *app) exec(ctx context.Context, o *execOptions, address string, command []string) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	j, err := c.find(ctx, address)
	if err != nil {
		return err
	}
	pod, container, err := replicaOf(j, o)
	if err != nil {
		return err
	}
	if err := c.runs(ctx, j, pod); err != nil {
		return err
	}
	t := terminalOf(a.In)
	tty := o.tty && t != nil
	if o.tty && t == nil {
		fmt.Fprintln(a.ErrOut, "Standard input is no terminal: the command gets none either.")
	}
	request := c.core.RESTClient().Post().Resource("pods").Namespace(j.GetNamespace()).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: container, Command: command, Stdin: o.stdin, Stdout: true, Stderr: !tty, TTY: tty,
		}, scheme.ParameterCodec)
	executor, err := c.executor(request.URL())
	if err != nil {
		return err
	}
	streams := remotecommand.StreamOptions{Stdout: raw(a.Out), Stderr: raw(a.ErrOut), Tty: tty}
	if o.stdin {
		streams.Stdin = a.In
	}
	if !tty {
		return execResult(executor.StreamWithContext(ctx, streams))
	}
	streams.Stderr = nil
	return t.raw(ctx, func(sizes remotecommand.TerminalSizeQueue) error {
		streams.TerminalSizeQueue = sizes
		return execResult(executor.StreamWithContext(ctx, streams))
	})
}

// executor speaks WebSockets, and SPDY with API servers or proxies that do not.
func (c *cluster) executor(u *url.URL) (remotecommand.Executor, error) {
	spdy, err := remotecommand.NewSPDYExecutor(c.config, "POST", u)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	socket, err := remotecommand.NewWebSocketExecutor(c.config, "GET", u.String())
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

// execResult passes the command's exit code on.
func execResult(err error) error {
	var exit utilexec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return &exitError{code: exit.ExitStatus()}
	}
	return err
}

// replicaOf names the pod and container that the flags mean.
func replicaOf(j *job, o *execOptions) (pod, container string, err error) {
	normal, err := j.lowered()
	if err != nil {
		return "", "", fmt.Errorf("reading %s: %w", j.ref(), err)
	}
	sel, err := newSelection(j, &logsOptions{role: o.role, container: o.container})
	if err != nil {
		return "", "", err
	}
	r := sel.roles[0]
	if o.rank < 0 || o.rank >= r.replicas {
		return "", "", fmt.Errorf("rank %d is out of range: role %q has ranks 0 to %d", o.rank, r.role, r.replicas-1)
	}
	return engine.ReplicaName(normal.Name, r.role, o.rank), r.container, nil
}

// runs fails with a sentence about a pod that no command can be run in.
func (c *cluster) runs(ctx context.Context, j *job, pod string) error {
	p, err := c.core.Pods(j.GetNamespace()).Get(ctx, pod, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no pod %s: %s is %s", pod, j.ref(), orUnknown(string(j.status().Phase)))
	case apierrors.IsForbidden(err): // whoever may not get pods may still run commands in them
		return nil
	case err != nil:
		return fmt.Errorf("getting pod %s: %w", pod, err)
	case p.Status.Phase != corev1.PodRunning:
		return fmt.Errorf("pod %s does not run: it is %s", pod, orUnknown(string(p.Status.Phase)))
	}
	return nil
}

func orUnknown(s string) string {
	if s == "" {
		return "not started yet"
	}
	return s
}
