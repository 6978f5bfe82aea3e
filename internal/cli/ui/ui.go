// Package ui implements "t9k ui", which serves the console on this machine: live pages of jobs, logs, queues and nodes.
package ui

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"tensorstack.dev/batch/internal/cli/archiveclient"
	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/console/live"
	"tensorstack.dev/batch/internal/console/server"
	"tensorstack.dev/batch/internal/tensorboard/forward"
)

type options struct {
	port      int
	noBrowser bool
}

// Command returns the command "t9k ui".
func Command(p *kit.Program) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Show jobs, logs, queues, nodes and history in a browser",
		Long: `Serve the console on this machine, print its address, and open it in a browser if there is one. Ctrl-C stops it.

The console shows what your kubeconfig allows you to see, and does what it allows you to do. It listens only on 127.0.0.1.
The address works once: it gives a cookie to the browser that opens it. The page History shows the archive of the console
that the variable T9K_CONSOLE or the kubeconfig names.`,
		Example: p.Example("t9k ui", "t9k ui --no-browser --port 8899"),
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), p, &o) },
	}
	cmd.Flags().IntVar(&o.port, "port", 0, "Port of this machine; 0 selects a free one")
	cmd.Flags().BoolVar(&o.noBrowser, "no-browser", false, "Only print the address")
	return cmd
}

// settleTime is the longest time for which the command waits for its caches to fill before it prints the address. The
// console pushes objects that arrive later to its pages.
const settleTime = 5 * time.Second

func serve(ctx context.Context, p *kit.Program, o *options) error {
	c, err := p.Connect()
	if err != nil {
		return err
	}
	if err := c.Core.RESTClient().Get().AbsPath("/version").Do(ctx).Error(); err != nil {
		return fmt.Errorf("reaching the cluster: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cache, err := live.Start(ctx, c.Config, c.Namespace)
	if err != nil {
		return err
	}
	defer cache.Wait()
	defer stop()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.port)))
	if err != nil {
		return fmt.Errorf("listening: %w; --port selects another port", err)
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	gate := server.NewGate(port, "127.0.0.1")
	console := server.New(server.Options{Cache: cache, Where: c.Name, Namespace: c.Namespace, Admission: &server.Local{Gate: gate, Objects: c.Objects, Core: c.Core},
		Boards: forward.NewBoards(&forward.Client{Config: c.Config, Objects: c.Objects, Core: c.Core, Manager: kit.FieldManager}), History: history(p)})
	defer console.Close()
	web := &http.Server{
		Handler:     console,
		BaseContext: func(net.Listener) context.Context { return ctx }, ReadHeaderTimeout: 10 * time.Second,
	}
	ended := make(chan error, 1)
	var serving sync.WaitGroup
	serving.Go(func() { ended <- web.Serve(listener) })
	defer serving.Wait()
	defer web.Close()
	select {
	case <-cache.Settled():
	case <-time.After(settleTime):
	case <-ctx.Done():
		return nil
	}
	address := fmt.Sprintf("http://127.0.0.1:%s/?token=%s", port, gate.Token())
	fmt.Fprintln(p.Out, address)
	fmt.Fprintf(p.ErrOut, "The address works once, within %.0f minutes. Ctrl-C ends the console.\n", server.TokenLifetime.Minutes())
	if !o.noBrowser && kit.HasBrowser() {
		if err := kit.Browse(ctx, address); err != nil {
			fmt.Fprintf(p.ErrOut, "No browser could be opened: %v\n", err)
		}
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return fmt.Errorf("serving the console: %w", err)
	}
}

// history returns the function with which the local console opens its archive: the archive of the console that
// T9K_CONSOLE or the kubeconfig names. It returns nil if neither names a console. If no client can be made, the
// returned function returns the error.
func history(p *kit.Program) func(*server.Caller) (server.History, error) {
	client, err := archiveclient.Connect(p, archiveclient.Options{})
	if errors.Is(err, archiveclient.ErrNone) {
		return nil
	}
	return func(*server.Caller) (server.History, error) { return client, err }
}
