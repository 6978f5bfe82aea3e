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

// Machine is the process that runs a cluster.
type Machine struct {
	Dir Dir
	// Ephemeral makes Run delete the cluster when its context ends or the cluster fails. Run then kills the pods
	// immediately and removes the directory.
	Ephemeral bool
}

// Run runs the configured cluster until ctx ends or a client requests a shutdown. No part of the cluster runs when it
// returns. The caller must have called Enter.
func (m *Machine) Run(ctx context.Context) error {
	if err := m.Dir.writePID(); err != nil {
		return err
	}
	c, err := m.Dir.Load()
	if err != nil {
		return err
	}
	err = m.runOn(ctx, c)
	if m.Ephemeral && (ctx.Err() != nil || err != nil) {
		err = errors.Join(err, m.Dir.remove())
	}
	return err
}

// runOn runs a cluster and keeps its ports reserved while it runs.
func (m *Machine) runOn(ctx context.Context, c *Config) error {
	release, err := m.Dir.takePorts(c)
	if err != nil {
		return err
	}
	if c.hasNode() {
		err = m.runNode(ctx, c)
	} else {
		err = m.run(ctx, c)
	}
	return errors.Join(err, release())
}

// runNode runs a cluster that has a node. Before the start, it removes the remaining pods of an earlier machine
// process. At the end, it removes all pods.
func (m *Machine) runNode(ctx context.Context, c *Config) error {
	if err := removeNode(ctx, m.Dir, c); err != nil {
		return fmt.Errorf("removing what is left of an earlier run: %w", err)
	}
	if err := coverKubeletPaths(m.Dir, c); err != nil {
		return err
	}
	if c.Runtime == RuntimeContainerd {
		if err := prepareContainerd(ctx, m.Dir, c); err != nil {
			return err
		}
	}
	if c.Rootless {
		stop, err := joinNetworks(ctx, c)
		if err != nil {
			return err
		}
		defer stop()
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

// run creates the credentials and the supervisor and serves until the shutdown is complete.
func (m *Machine) run(ctx context.Context, c *Config) error {
	if err := makeCredentials(m.Dir, c); err != nil {
		return err
	}
	if err := writeSettings(m.Dir, c); err != nil {
		return err
	}
	a, err := newAPIClient(m.Dir)
	if err != nil {
		return err
	}
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	supervised, endSupervision := context.WithCancel(context.WithoutCancel(ctx)) // only shutdown cancels it
	defer endSupervision()
	shutdown := &shutdown{endSupervision: endSupervision, logind: logind.NewServer()}
	supervisor, err := NewSupervisor(binary, newComponents(m.Dir, c, a, shutdown), m.Dir.LogFile)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { shutdown.request(m.grace()) })
	defer stop()
	return m.serve(supervised, c, supervisor, shutdown)
}

// serve runs the supervisor until ctx ends. As long as the supervisor runs, serve also serves the control socket and,
// if the cluster has a node, logind. If one of these servers fails, serve shuts the cluster down and returns the error.
func (m *Machine) serve(ctx context.Context, c *Config, supervisor *Supervisor, shutdown *shutdown) error {
	served, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	servers, served := errgroup.WithContext(served)
	servers.Go(func() error { return (&control{supervisor: supervisor, shutdown: shutdown}).serve(served, m.Dir) })
	if c.hasNode() {
		servers.Go(func() error { return shutdown.logind.Serve(served, m.Dir.logindSocket()) })
	}
	context.AfterFunc(served, func() { shutdown.request(0) }) // a cluster whose servers fail cannot be controlled
	supervisor.Run(ctx)
	stop()
	return servers.Wait()
}

// grace returns how long pods may take to terminate when the context of Run ends.
func (m *Machine) grace() time.Duration {
	if m.Ephemeral {
		return 0
	}
	return DefaultGrace
}

// lockWithRetry takes the directory's lock. It retries for a moment, because Dir.Running holds the lock briefly.
func (d Dir) lockWithRetry(ctx context.Context) (*os.File, error) {
	for attempt := 0; ; attempt++ {
		f, err := d.lock()
		if !errors.Is(err, errLocked) || attempt == 10 || !sleep(ctx, 20*time.Millisecond) {
			return f, err
		}
	}
}
