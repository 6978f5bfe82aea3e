package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"syscall"
	"time"
)

// upTimeout is how long a start may take on a slow machine before it is reported as failed.
const upTimeout = 5 * time.Minute

// Up starts the cluster in the background unless it runs already, and returns when all of it is ready. report is
// called with each component that becomes so. When ctx ends before, the cluster goes on starting. It fails if the
// machine cannot run pods, if the cluster runs with other options, or if a component does not become ready.
func Up(ctx context.Context, d Dir, o Options, report func(ComponentStatus)) (started bool, err error) {
	o.complete()
	if err := o.validate(); err != nil {
		return false, err
	}
	err = prepare(ctx, d, o)
	if errors.Is(err, errLocked) && awaitDown(ctx, d) {
		err = prepare(ctx, d, o)
	}
	if errors.Is(err, errLocked) {
		c, err := d.Load()
		if err != nil {
			return false, err
		}
		if !reflect.DeepEqual(c.Options, o) {
			return false, fmt.Errorf("cluster %s runs with other options: end it first by `t9k local down%s`", d.Name(), nameFlag(d))
		}
		return false, awaitReady(ctx, d, nil, report)
	}
	if err != nil {
		return false, err
	}
	ended, err := startMachine(d)
	if err != nil {
		return false, err
	}
	return true, awaitReady(ctx, d, ended, report)
}

// awaitDown waits for the end of a cluster that goes down, and tells whether it did.
func awaitDown(ctx context.Context, d Dir) bool {
	waited := false
	for {
		status, err := NewClient(d).Status(ctx)
		if err != nil || status.Shutdown == nil {
			return waited
		}
		waited = true
		if !sleep(ctx, readyInterval) {
			return false
		}
	}
}

// prepare makes the directory ready for a start with these options, or returns errLocked. What is left of an earlier
// run, which can only be found by the options that it had, is removed.
func prepare(ctx context.Context, d Dir, o Options) error {
	if err := CheckHost(); err != nil {
		return err
	}
	if err := d.create(); err != nil {
		return err
	}
	lock, err := d.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := sweep(ctx, d); err != nil {
		return err
	}
	_, err = d.Configure(o)
	return err
}

// startMachine starts the machine process in a session of its own. The channel tells how it ended, if it does.
func startMachine(d Dir) (<-chan error, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	log, err := os.OpenFile(d.LogFile(machineLog), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the machine process's log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(binary, "machine", "--dir", string(d))
	cmd.Dir = string(d)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the machine process: %w", err)
	}
	ended := make(chan error, 1)
	// Nobody waits for this once the cluster is ready: the machine process outlives the command that started it.
	go func() { ended <- cmd.Wait() }()
	return ended, nil
}

// awaitReady waits for every component. A machine process that ended (never, if the channel is nil) is a failure,
// unless another one, started at the same time, had the lock before it.
func awaitReady(ctx context.Context, d Dir, ended <-chan error, report func(ComponentStatus)) error {
	ctx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	client := NewClient(d)
	reported := map[string]bool{}
	last, silent := &Status{}, error(nil) // what the machine process has said last, and why it said no more
	probed := time.Now()
	for {
		status, err := client.Status(ctx)
		// What has become ready once may serve no more, and others wait for it.
		if err == nil && (status.Ready() || time.Since(probed) > probeEvery) {
			status, err = client.Probe(ctx)
			probed = time.Now()
		}
		if ctx.Err() == nil {
			silent = err
		}
		if err == nil {
			last = status
			reportReady(status, reported, report)
			if status.Ready() {
				return nil
			}
			if err := blocked(d, status); err != nil {
				return err
			}
		}
		select {
		case how := <-ended:
			ended = nil
			if !d.Running() {
				return machineEnded(d, how)
			}
		case <-ctx.Done():
			return notReady(ctx, d, last, silent)
		case <-time.After(readyInterval):
		}
	}
}

// reportReady reports the components that have become ready since the last time.
func reportReady(status *Status, reported map[string]bool, report func(ComponentStatus)) {
	for _, c := range status.Components {
		if c.State == StateReady && !reported[c.Name] {
			reported[c.Name] = true
			report(c)
		}
	}
}

// blocked returns what keeps the cluster from becoming ready and does not pass by itself, or nil.
func blocked(d Dir, status *Status) error {
	for _, c := range status.Components {
		if c.Blocked {
			return fmt.Errorf("cluster %s cannot become ready: %s: %s", d.Name(), c.Name, c.Message)
		}
	}
	return nil
}

// machineEnded gives the reason that a machine process wrote down, or how it ended if it could not.
func machineEnded(d Dir, how error) error {
	if said := strings.TrimPrefix(lastLines(d.LogFile(machineLog), 5), "t9k local: "); said != "" {
		return fmt.Errorf("starting cluster %s: %s", d.Name(), said)
	}
	if how == nil {
		return fmt.Errorf("starting cluster %s: it was told to stop", d.Name())
	}
	return fmt.Errorf("starting cluster %s: its machine process ended: %w", d.Name(), how)
}

// notReady says what a start that took too long or was interrupted was waiting for, or why that cannot be said.
func notReady(ctx context.Context, d Dir, status *Status, silent error) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("interrupted; the cluster goes on starting: see `t9k local status%s`", nameFlag(d))
	}
	text := fmt.Sprintf("the cluster is not ready after %s", upTimeout)
	if silent != nil {
		text += fmt.Sprintf("\nits machine process does not answer: %v; the end of its log:\n%s", silent, lastLines(d.LogFile(machineLog), 5))
	}
	for _, c := range status.Components {
		if c.State != StateReady {
			text += strings.TrimSuffix(fmt.Sprintf("\n%s: %s: %s", c.Name, c.State, c.Message), ": ")
			if log := lastLines(d.LogFile(c.Name), 5); log != "" {
				text += "; the end of its log:\n" + log
			}
		}
	}
	return errors.New(text)
}

// lastLines returns the end of a file, or why it cannot be read. One that does not exist has no lines: not every part of a
// cluster is a process with a log.
func lastLines(path string, n int) string {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// nameFlag is how to name the cluster on the command line.
func nameFlag(d Dir) string {
	if d.Name() == DefaultName {
		return ""
	}
	return " --name " + d.Name()
}
