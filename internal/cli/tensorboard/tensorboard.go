// Package tensorboard is "t9k tensorboard", which forwards a local port to a TensorBoard.
package tensorboard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/tensorboard/board"
)

type options struct {
	port         int
	open, resume bool
	timeout      time.Duration
}

// poll is the interval at which a starting TensorBoard is checked.
const poll = 300 * time.Millisecond

// Command returns the verb.
func Command(p *kit.Program) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "tensorboard JOB|NAME",
		Short: "Forward a port to a TensorBoard",
		Long: `Forward a port of this machine to the TensorBoard of a job, or to a TensorBoard without a job, and print the address.
The TensorBoard of a job has the name of the job. Ctrl-C stops the forwarding.

The operator suspends a TensorBoard that has had no request for a long time. --resume starts it again.`,
		Example:           p.Example("t9k tensorboard mnist", "t9k tensorboard mnist --open", "t9k tensorboard mnist --resume"),
		Args:              kit.NeedJob,
		ValidArgsFunction: complete(p),
		RunE:              func(cmd *cobra.Command, args []string) error { return show(cmd.Context(), p, &o, args[0]) },
	}
	f := cmd.Flags()
	f.IntVar(&o.port, "port", 0, "Port of this machine; 0 selects a free one")
	f.BoolVar(&o.open, "open", false, "Open the address in a browser")
	f.BoolVar(&o.resume, "resume", false, "Start it again if it is suspended")
	f.DurationVar(&o.timeout, "timeout", time.Minute, "How long to wait until it answers")
	return cmd
}

func show(ctx context.Context, p *kit.Program, o *options, address string) error {
	c, err := p.Connect()
	if err != nil {
		return err
	}
	tb, err := findTensorBoard(ctx, c, address)
	if err != nil {
		return err
	}
	if board.Suspended(tb) {
		if !o.resume {
			return fmt.Errorf("tensorboard/%s is suspended: \"t9k tensorboard %s --resume\" starts it again", tb.Name, address)
		}
		patch := []byte(`{"spec":{"suspend":false}}`)
		if _, err := tensorBoards(c).Patch(ctx, tb.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: kit.FieldManager}); err != nil {
			return fmt.Errorf("resuming tensorboard/%s: %w", tb.Name, err)
		}
		fmt.Fprintf(p.ErrOut, "tensorboard/%s is being resumed.\n", tb.Name)
	}
	if tb, err = awaitTensorBoard(ctx, p, c, o, tb.Name); err != nil {
		return err
	}
	return forward(ctx, p, c, o, tb)
}

// complete returns a completion of the names of TensorBoards. The TensorBoard of a job has the job's name.
func complete(p *kit.Program) kit.Completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return p.Complete(cmd.Context(), func(ctx context.Context, c *kit.Cluster) ([]string, error) {
			list, err := tensorBoards(c).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			var names []string
			for i := range list.Items {
				phase, _, _ := unstructured.NestedString(list.Items[i].Object, "status", "phase")
				names = append(names, cobra.CompletionWithDesc(list.Items[i].GetName(), phase))
			}
			return names, nil
		})
	}
}

func tensorBoards(c *kit.Cluster) dynamic.ResourceInterface {
	return c.Objects.Resource(tensorboard.GroupVersion.WithResource("tensorboards")).Namespace(c.Namespace)
}

func getTensorBoard(ctx context.Context, c *kit.Cluster, name string) (*tensorboard.TensorBoard, error) {
	raw, err := tensorBoards(c).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	tb := &tensorboard.TensorBoard{}
	if err := kruntime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, tb); err != nil {
		return nil, fmt.Errorf("reading tensorboard/%s: %w", name, err)
	}
	return tb, nil
}

// findTensorBoard returns the TensorBoard with a name or of a job. If there is none, the error contains the reason from
// the job's status.
func findTensorBoard(ctx context.Context, c *kit.Cluster, address string) (*tensorboard.TensorBoard, error) {
	kind, name, err := kit.ParseAddress(address)
	if err != nil {
		return nil, err
	}
	tb, err := getTensorBoard(ctx, c, name)
	switch {
	case kit.NotServed(err):
		return nil, kit.ErrNotInstalled
	case err == nil && kind == nil:
		return tb, nil
	case err != nil && !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("getting tensorboard/%s: %w", name, err)
	}
	j, jobErr := c.Find(ctx, address)
	if jobErr != nil {
		return nil, fmt.Errorf("no TensorBoard %q in namespace %q: %w", name, c.Namespace, jobErr)
	}
	if err == nil && metav1.IsControlledBy(tb, j.Object) {
		return tb, nil
	}
	if j.Kind.Training == nil {
		return nil, fmt.Errorf("%s has no TensorBoard, because jobs of this kind have none: create a TensorBoard that reads its logs", j.Ref())
	}
	spec, status := j.Kind.Training(j.Object)
	switch {
	case spec.TensorBoardSpec == nil:
		return nil, fmt.Errorf("%s has no TensorBoard, because it was created without tensorboardSpec: create a TensorBoard that reads its logs", j.Ref())
	case status.TensorBoard != nil && status.TensorBoard.Note != "":
		return nil, fmt.Errorf("%s has no TensorBoard: %s", j.Ref(), status.TensorBoard.Note)
	}
	return nil, fmt.Errorf("%s has no TensorBoard yet: is the operator running?", j.Ref())
}

// awaitTensorBoard waits until a TensorBoard answers, and prints what it waits for.
func awaitTensorBoard(ctx context.Context, p *kit.Program, c *kit.Cluster, o *options, name string) (*tensorboard.TensorBoard, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("tensorboard/%s does not answer after %s", name, o.timeout))
	defer cancel()
	reported := ""
	for {
		tb, err := getTensorBoard(ctx, c, name)
		if err != nil && ctx.Err() == nil {
			return nil, fmt.Errorf("getting tensorboard/%s: %w", name, err)
		}
		if err == nil {
			ready := board.ReadyCondition(tb)
			current := tb.Status.ObservedGeneration == tb.Generation
			if current && ready.Status == metav1.ConditionTrue && tb.Status.Pod != nil {
				return tb, nil
			}
			if current && ready.Message != reported {
				reported = ready.Message
				fmt.Fprintf(p.ErrOut, "tensorboard/%s: %s\n", name, reported)
			}
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(poll):
		}
	}
}

// forward forwards connections from a local port to a TensorBoard until ctx ends.
func forward(ctx context.Context, p *kit.Program, c *kit.Cluster, o *options, tb *tensorboard.TensorBoard) error {
	dialer, err := forwarder(c, tb)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var forwarding sync.WaitGroup
	defer forwarding.Wait()
	defer stop()
	ready := make(chan struct{})
	ports := []string{fmt.Sprintf("%d:%d", o.port, board.Port())}
	f, err := portforward.NewOnAddressesForStreaming(dialer, []string{"127.0.0.1"}, ports, ctx.Done(), ready, io.Discard, p.ErrOut)
	if err != nil {
		return fmt.Errorf("forwarding a port: %w", err)
	}
	ended := make(chan error, 1)
	forwarding.Go(func() { ended <- f.ForwardPorts() })
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
	fmt.Fprintln(p.Out, url)
	fmt.Fprintln(p.ErrOut, "Ctrl-C closes the connection; the TensorBoard keeps running.")
	if o.open {
		if err := kit.Browse(ctx, url); err != nil {
			fmt.Fprintf(p.ErrOut, "No browser could be opened: %v\n", err)
		}
	}
	if err := <-ended; err != nil {
		return fmt.Errorf("the connection to pod %s was lost; run the command again to reach the next pod: %w", tb.Status.Pod.Reference.Name, err)
	}
	if ctx.Err() == nil {
		return errors.New("the connection was lost: run the command again")
	}
	return nil
}

// forwarder returns a dialer that uses WebSockets, and SPDY if the API server or a proxy does not support them.
func forwarder(c *kit.Cluster, tb *tensorboard.TensorBoard) (httpstream.Dialer, error) {
	u := c.Core.RESTClient().Post().Resource("pods").Namespace(tb.Namespace).Name(tb.Status.Pod.Reference.Name).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(c.Config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	socket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(u, c.Config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	old := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, u)
	return portforward.NewFallbackDialerForStreaming(socket, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}
