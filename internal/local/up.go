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

// upTimeout is how long Up waits until every component is ready. It is long enough for slow machines.
const upTimeout = 5 * time.Minute

// Up starts the cluster in the background, unless it already runs, and returns when every component is ready. started
// reports whether this call has started the cluster. Up calls report once for each component that is or becomes ready.
// If ctx ends first, Up returns an error and the start continues in the background. Up fails if the machine cannot run
// pods, if the cluster runs with other options, or if a component does not become ready.
func Up(ctx context.Context, d Dir, o Options, report func(ComponentStatus)) (started bool, err error) {
	o.complete()
	if err := o.validate(); err != nil {
		return false, err
	}
	for {
		err = prepare(ctx, d, o)
		if errors.Is(err, errLocked) && awaitDown(ctx, d) {
			err = prepare(ctx, d, o)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, errLocked) {
			return false, err
		}
		c, err := d.Load()
		if err != nil {
			return false, err
		}
		if !reflect.DeepEqual(c.Options, o) {
			return false, fmt.Errorf("cluster %s runs with other options: stop it first by `t9k local down%s`", d.Name(), d.NameFlag())
		}
		if err := awaitReady(ctx, d, nil, report); !errors.Is(err, errGone) {
			return false, err
		}
	}
	ended, err := startMachine(d)
	if err != nil {
		return false, err
	}
	return true, awaitReady(ctx, d, ended, report)
}

// errGone means that the cluster, which another command had started, has ended. A killed machine process holds its lock
// until the kernel has cleaned up the process, which takes a while on a busy machine.
var errGone = errors.New("the cluster has ended")

// awaitDown waits while the cluster is shutting down. It reports whether it has waited for a shutdown, and false if ctx
// ends first.
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

// prepare makes the directory ready for a start with these options. It returns errLocked if another process holds the
// lock. It first removes the leftovers of an earlier run, because finding them requires the options of that run.
func prepare(ctx context.Context, d Dir, o Options) error {
	if err := CheckPodSupport(); err != nil {
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
	if err := removeLeftovers(ctx, d); err != nil {
		return err
	}
	_, err = d.Configure(o)
	return err
}

// startMachine starts the machine process in a new session. The returned channel receives the process's exit error,
// which is nil for exit code 0, when it exits.
func startMachine(d Dir) (<-chan error, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	if err := os.Remove(d.exitErrorFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("removing the error of an earlier run: %w", err)
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
	// The machine process outlives this command, so nothing waits for the goroutine once the cluster is ready.
	go func() { ended <- cmd.Wait() }()
	return ended, nil
}

// awaitReady waits until every component is ready. It fails if a component is blocked, after upTimeout, and if the
// machine process exits, unless another process, started at the same time, has taken the lock. ended is nil if another
// command has started the machine process; awaitReady then returns errGone if that process exits.
func awaitReady(ctx context.Context, d Dir, ended <-chan error, report func(ComponentStatus)) error {
	ctx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	client := NewClient(d)
	others := ended == nil
	reported := map[string]bool{}
	last, statusErr := &Status{}, error(nil) // last status, and why there is no newer one
	probed := time.Now()
	for {
		status, err := client.Status(ctx)
		// Status shows a component as ready once it was. Only Probe detects that a component has stopped serving.
		if err == nil && (status.Ready() || time.Since(probed) > probeEvery) {
			status, err = client.Probe(ctx)
			probed = time.Now()
		}
		if ctx.Err() == nil {
			statusErr = err
		}
		if err == nil {
			last = status
			reportReady(status, reported, report)
			if status.Ready() {
				return nil
			}
			if err := blockedComponent(d, status); err != nil {
				return err
			}
		}
		if others && hasEnded(d, err) {
			return errGone
		}
		select {
		case exitErr := <-ended:
			ended = nil
			if !d.Running() {
				return machineExitError(d, exitErr)
			}
		case <-ctx.Done():
			return notReadyError(ctx, d, last, statusErr)
		case <-time.After(readyInterval):
		}
	}
}

// hasEnded reports whether the machine process has exited. err is the error of the last request to it; nil means that
// it has answered.
func hasEnded(d Dir, err error) bool { return err != nil && !d.Running() }

// reportReady calls report with the components that have become ready since the last call.
func reportReady(status *Status, reported map[string]bool, report func(ComponentStatus)) {
	for _, c := range status.Components {
		if c.State == StateReady && !reported[c.Name] {
			reported[c.Name] = true
			report(c)
		}
	}
}

// blockedComponent returns an error that names the first component that cannot become ready by itself, or nil.
func blockedComponent(d Dir, status *Status) error {
	for _, c := range status.Components {
		if c.Blocked {
			return fmt.Errorf("cluster %s cannot become ready: %s: %s", d.Name(), c.Name, c.Message)
		}
	}
	return nil
}

// machineExitError returns why the machine process exited: the error that it recorded, or otherwise its exit status and
// the end of its log. If exitErr is nil, another command stopped the machine process.
func machineExitError(d Dir, exitErr error) error {
	if recorded, err := os.ReadFile(d.exitErrorFile()); err == nil {
		return fmt.Errorf("starting cluster %s: %s", d.Name(), recorded)
	}
	if exitErr == nil {
		return fmt.Errorf("starting cluster %s: another command stopped it", d.Name())
	}
	return fmt.Errorf("starting cluster %s: its machine process ended: %w; the end of its log:\n%s", d.Name(), exitErr, lastLines(d.LogFile(machineLog), 5))
}

// notReadyError returns the error for a ctx that ended before the cluster was ready. After a timeout, the error
// contains the components that are not ready and the ends of their logs and, if the machine process does not answer,
// the end of its log.
func notReadyError(ctx context.Context, d Dir, status *Status, statusErr error) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("interrupted; the cluster continues to start: see `t9k local status%s`", d.NameFlag())
	}
	text := fmt.Sprintf("the cluster is not ready after %s", upTimeout)
	if statusErr != nil {
		text += fmt.Sprintf("\nits machine process does not answer: %v; the end of its log:\n%s", statusErr, lastLines(d.LogFile(machineLog), 5))
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

// lastLines returns the last n lines of a file, or the reason why it cannot be read. It returns an empty string for a
// file that does not exist, because a component that is a step has no log.
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

// NameFlag returns the flag that names the cluster on the command line, after a space. It returns an empty string for
// the default cluster.
func (d Dir) NameFlag() string {
	if d.Name() == DefaultName {
		return ""
	}
	return " --name " + d.Name()
}
