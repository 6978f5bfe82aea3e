package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"tensorstack.dev/batch/internal/local/logind"
)

// Machine is the process that holds a cluster together.
type Machine struct {
	Dir Dir
	// Ephemeral says that nobody will want the cluster back when the context of Run ends: pods are given no time to end then,
	// and the directory is removed.
	Ephemeral bool
}

// Run runs the cluster as its configuration says until ctx ends or a request to stop comes, and leaves nothing of it
// running. The caller has come through Enter.
func (m *Machine) Run(ctx context.Context) error {
	if err := m.Dir.writePID(); err != nil {
		return err
	}
	c, err := m.Dir.Load()
	if err != nil {
		return err
	}
	if c.hasNode() {
		err = m.runNode(ctx, c)
	} else {
		err = m.run(ctx, c)
	}
	if m.Ephemeral && (ctx.Err() != nil || err != nil) {
		err = errors.Join(err, m.Dir.remove())
	}
	return err
}

// runNode runs a cluster that runs pods. What an earlier machine process left of them when it was killed is removed
// first, and everything of them at the end.
func (m *Machine) runNode(ctx context.Context, c *Config) error {
	if err := removeNode(ctx, m.Dir, c); err != nil {
		return fmt.Errorf("removing what is left of an earlier run: %w", err)
	}
	if err := shieldHost(m.Dir, c); err != nil {
		return err
	}
	if c.Runtime == RuntimeContainerd {
		if err := prepareContainerd(ctx, m.Dir, c); err != nil {
			return err
		}
	}
	if c.Rootless {
		if err := joinNetworks(ctx, c); err != nil {
			return err
		}
	}
	if err := writeKubeletConfig(m.Dir, c); err != nil {
		return err
	}
	err := m.run(ctx, c)
	if cleanup := removeNode(context.WithoutCancel(ctx), m.Dir, c); cleanup != nil {
		err = errors.Join(err, fmt.Errorf("removing the pods: %w", cleanup))
	}
	return err
}

func (m *Machine) run(ctx context.Context, c *Config) error {
	if err := makeCredentials(m.Dir, c); err != nil {
		return err
	}
	a, err := newAPI(m.Dir)
	if err != nil {
		return err
	}
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	supervised, begin := context.WithCancel(context.WithoutCancel(ctx)) // by end alone, which knows how long it may take
	defer begin()
	end := &shutdown{begin: begin, logind: logind.NewServer()}
	supervisor, err := NewSupervisor(binary, newPlane(m.Dir, c, a, end), m.Dir.LogFile)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { end.request(m.grace()) })
	defer stop()
	return m.serve(supervised, c, supervisor, end)
}

// serve runs the supervisor until ctx ends, and what serves others as long as the supervisor runs.
func (m *Machine) serve(ctx context.Context, c *Config, supervisor *Supervisor, end *shutdown) error {
	served, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	servers, served := errgroup.WithContext(served)
	servers.Go(func() error { return (&control{supervisor: supervisor, end: end}).serve(served, m.Dir) })
	if c.hasNode() {
		servers.Go(func() error { return end.logind.Serve(served, m.Dir.logindSocket()) })
	}
	context.AfterFunc(served, func() { end.request(0) }) // nobody can steer a cluster whose servers fail
	supervisor.Run(ctx)
	stop()
	return servers.Wait()
}

// grace is how long pods may take when the context of Run ends.
func (m *Machine) grace() time.Duration {
	if m.Ephemeral {
		return 0
	}
	return DefaultGrace
}

// lockPatiently takes the directory's lock, which a process that merely looks whether the cluster runs holds for a
// moment.
func (d Dir) lockPatiently(ctx context.Context) (*os.File, error) {
	for attempt := 0; ; attempt++ {
		f, err := d.lock()
		if !errors.Is(err, errLocked) || attempt == 10 || !sleep(ctx, 20*time.Millisecond) {
			return f, err
		}
	}
}
