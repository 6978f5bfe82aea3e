package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/tensorboard/board"
)

type tensorBoardOptions struct {
	port         int
	open, resume bool
	timeout      time.Duration
}

// tensorBoardPoll is the pause between two looks at a TensorBoard that is being started.
const tensorBoardPoll = 300 * time.Millisecond

func (a *app) tensorBoardCommand() *cobra.Command {
	var o tensorBoardOptions
	cmd := &cobra.Command{
		Use:   "tensorboard JOB|NAME",
		Short: "Look at a TensorBoard",
		Long: `Forward a port of this machine to a job's TensorBoard, or to one that belongs to no job, and print the address. It goes on
until Ctrl-C. A job's TensorBoard has the job's name.

A TensorBoard that nobody looks at for long is suspended; --resume starts it again.`,
		Example:           a.example("t9k tensorboard mnist", "t9k tensorboard mnist --open", "t9k tensorboard mnist --resume"),
		Args:              needJob,
		ValidArgsFunction: a.completeTensorBoards,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.tensorBoard(cmd.Context(), &o, args[0]) },
	}
	f := cmd.Flags()
	f.IntVar(&o.port, "port", 0, "Port of this machine; 0 takes one that is free")
	f.BoolVar(&o.open, "open", false, "Open the address in a browser")
	f.BoolVar(&o.resume, "resume", false, "Start it again if it is suspended")
	f.DurationVar(&o.timeout, "timeout", time.Minute, "How long to wait until it answers")
	return cmd
}

func (a *app) tensorBoard(ctx context.Context, o *tensorBoardOptions, address string) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	tb, err := c.findTensorBoard(ctx, address)
	if err != nil {
		return err
	}
	if board.Suspended(tb) {
		if !o.resume {
			return fmt.Errorf("tensorboard/%s is suspended: \"t9k tensorboard %s --resume\" starts it again", tb.Name, address)
		}
		patch := []byte(`{"spec":{"suspend":false}}`)
		if _, err := c.tensorBoards().Patch(ctx, tb.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}); err != nil {
			return fmt.Errorf("resuming tensorboard/%s: %w", tb.Name, err)
		}
		fmt.Fprintf(a.ErrOut, "tensorboard/%s is being resumed.\n", tb.Name)
	}
	if tb, err = a.awaitTensorBoard(ctx, c, o, tb.Name); err != nil {
		return err
	}
	return a.forward(ctx, c, o, tb)
}

func (c *cluster) tensorBoards() dynamic.ResourceInterface {
	return c.objects.Resource(tensorboard.GroupVersion.WithResource("tensorboards")).Namespace(c.namespace)
}

func (c *cluster) getTensorBoard(ctx context.Context, name string) (*tensorboard.TensorBoard, error) {
	raw, err := c.tensorBoards().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	tb := &tensorboard.TensorBoard{}
	if err := kruntime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, tb); err != nil {
		return nil, fmt.Errorf("reading tensorboard/%s: %w", name, err)
	}
	return tb, nil
}

// findTensorBoard gets the TensorBoard of a name or of a job. Where there is none, what the job tells of it is the reason.
func (c *cluster) findTensorBoard(ctx context.Context, address string) (*tensorboard.TensorBoard, error) {
	kind, name, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	tb, err := c.getTensorBoard(ctx, name)
	switch {
	case notServed(err):
		return nil, errNotInstalled
	case err == nil && kind == nil:
		return tb, nil
	case err != nil && !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("getting tensorboard/%s: %w", name, err)
	}
	j, jobErr := c.find(ctx, address)
	if jobErr != nil {
		return nil, fmt.Errorf("no TensorBoard %q in namespace %q: %w", name, c.namespace, jobErr)
	}
	if err == nil && metav1.IsControlledBy(tb, j.Object) {
		return tb, nil
	}
	if j.kind.Training == nil {
		return nil, fmt.Errorf("%s has no TensorBoard: jobs of this kind have none of their own; make a TensorBoard that reads its logs", j.ref())
	}
	spec, status := j.kind.Training(j.Object)
	switch {
	case spec.TensorBoardSpec == nil:
		return nil, fmt.Errorf("%s has no TensorBoard: it was created without tensorboardSpec; make a TensorBoard that reads its logs", j.ref())
	case status.TensorBoard != nil && status.TensorBoard.Note != "":
		return nil, fmt.Errorf("%s has no TensorBoard: %s", j.ref(), status.TensorBoard.Note)
	}
	return nil, fmt.Errorf("%s has no TensorBoard yet: is the operator running?", j.ref())
}

// awaitTensorBoard waits until a TensorBoard answers, and says what it waits for.
func (a *app) awaitTensorBoard(ctx context.Context, c *cluster, o *tensorBoardOptions, name string) (*tensorboard.TensorBoard, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("tensorboard/%s does not answer after %s", name, o.timeout))
	defer cancel()
	said := ""
	for {
		tb, err := c.getTensorBoard(ctx, name)
		if err != nil && ctx.Err() == nil {
			return nil, fmt.Errorf("getting tensorboard/%s: %w", name, err)
		}
		if err == nil {
			ready := board.ReadyCondition(tb)
			current := tb.Status.ObservedGeneration == tb.Generation
			if current && ready.Status == metav1.ConditionTrue && tb.Status.Pod != nil {
				return tb, nil
			}
			if current && ready.Message != said {
				said = ready.Message
				fmt.Fprintf(a.ErrOut, "tensorboard/%s: %s\n", name, said)
			}
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(tensorBoardPoll):
		}
	}
}

// forward passes connections to a port of this machine on to a TensorBoard until ctx ends.
func (a *app) forward(ctx context.Context, c *cluster, o *tensorBoardOptions, tb *tensorboard.TensorBoard) error {
	dialer, err := c.forwarder(tb)
	if err != nil {
		return err
	}
	ready := make(chan struct{})
	ports := []string{fmt.Sprintf("%d:%d", o.port, board.Port())}
	f, err := portforward.NewOnAddressesForStreaming(dialer, []string{"127.0.0.1"}, ports, ctx.Done(), ready, io.Discard, a.ErrOut)
	if err != nil {
		return fmt.Errorf("forwarding a port: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- f.ForwardPorts() }()
	select {
	case err := <-ended:
		return fmt.Errorf("forwarding a port to pod %s: %w", tb.Status.Pod.Reference.Name, err)
	case <-ready:
	}
	local, err := f.GetPorts()
	if err != nil {
		return fmt.Errorf("forwarding a port: %w", err)
	}
	url := fmt.Sprintf("http://127.0.0.1:%d%s/", local[0].Local, board.Prefix(tb))
	fmt.Fprintln(a.Out, url)
	fmt.Fprintln(a.ErrOut, "Ctrl-C ends this; the TensorBoard goes on.")
	if o.open {
		if err := browse(ctx, url); err != nil {
			fmt.Fprintf(a.ErrOut, "No browser could be opened: %v\n", err)
		}
	}
	if err := <-ended; err != nil {
		return fmt.Errorf("the connection to pod %s was lost; call again to look at its successor: %w", tb.Status.Pod.Reference.Name, err)
	}
	if ctx.Err() == nil {
		return errors.New("the connection was lost: call again")
	}
	return nil
}

// forwarder speaks WebSockets, and SPDY with API servers or proxies that do not.
func (c *cluster) forwarder(tb *tensorboard.TensorBoard) (httpstream.Dialer, error) {
	u := c.core.RESTClient().Post().Resource("pods").Namespace(tb.Namespace).Name(tb.Status.Pod.Reference.Name).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(c.config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	socket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(u, c.config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	old := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, u)
	return portforward.NewFallbackDialerForStreaming(socket, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

// browse opens an address in the browser that people have chosen.
func browse(ctx context.Context, url string) error {
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	return exec.CommandContext(ctx, program, url).Start()
}
