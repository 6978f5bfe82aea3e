package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// downTimeout is how long a machine process may take to end everything but the pods before it is killed.
const downTimeout = 30 * time.Second

// Exists tells whether there is a cluster in the directory, running or not.
func (d Dir) Exists() bool {
	_, err := os.Stat(d.configFile())
	return err == nil
}

// Down ends every process of the cluster, its pods included, and removes its mounts and network devices, in whatever
// state it is. Pods end as on a machine that shuts down, within grace; report is called now and then with how far they are. The
// cluster's data stay for the next Up. Down tells whether the cluster was running.
func Down(ctx context.Context, d Dir, grace time.Duration, report func(ShutdownStatus)) (ran bool, err error) {
	if !d.Exists() {
		return false, nil
	}
	ran = d.Running()
	lock, err := stopMachine(ctx, d, grace, report)
	if err != nil {
		return ran, err
	}
	defer lock.Close()
	return ran, sweep(ctx, d)
}

// Remove ends the cluster as Down does, and deletes its directory.
func Remove(ctx context.Context, d Dir, grace time.Duration, report func(ShutdownStatus)) (ran bool, err error) {
	if ran, err = Down(ctx, d, grace, report); err != nil {
		return ran, err
	}
	return ran, d.remove()
}

// stopMachine returns with the directory's lock in hand. A machine process that does not end in time is killed, and
// its components with it.
func stopMachine(ctx context.Context, d Dir, grace time.Duration, report func(ShutdownStatus)) (*os.File, error) {
	client := NewClient(d)
	deadline := time.Now().Add(grace + reportTime + downTimeout)
	asked, killed := false, false
	for {
		lock, err := d.lock()
		if !errors.Is(err, errLocked) {
			return lock, err
		}
		if !asked {
			asked = client.Stop(ctx, grace) == nil // fails while the process is only just starting
		} else if status, err := client.Status(ctx); err == nil && status.Shutdown != nil {
			report(*status.Shutdown)
		}
		if time.Now().After(deadline) {
			if killed {
				return nil, fmt.Errorf("process %d does not end", d.machinePID())
			}
			killed = true
			deadline = deadline.Add(downTimeout)
			if pid := d.machinePID(); pid > 1 {
				_ = unix.Kill(pid, unix.SIGKILL) // it holds the lock, so the number is its own
			}
		}
		if !sleep(ctx, readyInterval) {
			return nil, ctx.Err()
		}
	}
}

// machinePID is the process that holds the directory's lock, as it wrote it down.
func (d Dir) machinePID() int {
	data, err := os.ReadFile(d.lockFile())
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0
	}
	return pid
}

// writePID writes this process into the lock that it holds.
func (d Dir) writePID() error {
	if err := os.WriteFile(d.lockFile(), []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		return fmt.Errorf("writing the lock: %w", err)
	}
	return nil
}

// sweep removes what a machine process that was killed left running. The caller holds the lock.
func sweep(ctx context.Context, d Dir) error {
	c, err := d.Load()
	if err != nil {
		return err
	}
	if !c.hasNode() {
		return nil
	}
	if err := removeNode(ctx, d, c); err != nil {
		return fmt.Errorf("removing the pods: %w", err)
	}
	return unmountBelow(string(d))
}

// remove deletes the directory. What is mounted below it, which may be the user's own files, is unmounted first.
func (d Dir) remove() error {
	if err := unmountBelow(string(d)); err != nil {
		return err
	}
	err := os.RemoveAll(string(d))
	if errors.Is(err, fs.ErrPermission) {
		// The kernel makes directories of overlays that deny access even to their owner.
		_ = filepath.WalkDir(string(d), func(path string, e fs.DirEntry, _ error) error {
			if e != nil && e.IsDir() {
				_ = os.Chmod(path, 0o700)
			}
			return nil
		})
		err = os.RemoveAll(string(d))
	}
	if err != nil {
		return fmt.Errorf("deleting the cluster's directory: %w", err)
	}
	return nil
}

// unmountBelow unmounts all that is mounted below dir, and fails if something still is then.
func unmountBelow(dir string) error {
	mounts, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(mounts) { // the last one first
		if err := unix.Unmount(m, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmounting %s: %w", m, err)
		}
	}
	if mounts, err = mountsBelow(dir); err == nil && len(mounts) > 0 {
		err = fmt.Errorf("%s is still mounted", mounts[0])
	}
	return err
}

// mountsBelow lists the mount points below dir, as this process sees them, in the order in which they were mounted.
func mountsBelow(dir string) ([]string, error) {
	real, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("listing mounts: %w", err)
	}
	octal := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var mounts []string
	for line := range bytes.Lines(table) {
		fields := strings.Fields(string(line))
		if len(fields) < 5 {
			continue
		}
		if point := octal.Replace(fields[4]); strings.HasPrefix(point, real+"/") {
			mounts = append(mounts, point)
		}
	}
	return mounts, nil
}
