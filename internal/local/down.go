package local

import (
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

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// downTimeout is how long a machine process may take to stop everything except the pods. After that, stopMachine kills
// it.
const downTimeout = 30 * time.Second

// Exists reports whether the directory holds a cluster, running or not.
func (d Dir) Exists() bool {
	_, err := os.Stat(d.configFile())
	return err == nil
}

// Down stops every process of the cluster, including its pods, and removes its mounts and network devices. It works in
// any state of the cluster. grace is the grace period of the pods. Down calls report repeatedly with the progress. The
// cluster's data remain for the next Up. ran reports whether the cluster was running.
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
	return ran, removeLeftovers(ctx, d)
}

// Remove stops the cluster as Down does and deletes its directory.
func Remove(ctx context.Context, d Dir, grace time.Duration, report func(ShutdownStatus)) (ran bool, err error) {
	if ran, err = Down(ctx, d, grace, report); err != nil {
		return ran, err
	}
	return ran, d.remove()
}

// stopMachine stops the machine process and returns the directory's lock. It kills a machine process that does not stop
// in time, and the components die with it.
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
			asked = client.Stop(ctx, grace) == nil // fails while the machine process is still starting
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
				_ = unix.Kill(pid, unix.SIGKILL) // the process still holds the lock, so its ID was not reused
			}
		}
		if !sleep(ctx, readyInterval) {
			return nil, ctx.Err()
		}
	}
}

// machinePID returns the process ID that the last machine process wrote into the lock file, or 0 if there is none.
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

// writePID writes this process's ID into the lock file. The caller holds the lock.
func (d Dir) writePID() error {
	if err := os.WriteFile(d.lockFile(), []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		return fmt.Errorf("writing the lock: %w", err)
	}
	return nil
}

// removeLeftovers removes pods, network devices and mounts that a killed machine process left. The caller holds the
// lock.
func removeLeftovers(ctx context.Context, d Dir) error {
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

// remove unmounts everything below the directory and deletes the directory. It unmounts first, because a mount can
// contain the user's own files.
func (d Dir) remove() error {
	if err := unmountBelow(string(d)); err != nil {
		return err
	}
	err := os.RemoveAll(string(d))
	if errors.Is(err, fs.ErrPermission) {
		// The kernel creates work directories of overlays, which deny access even to their owner.
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

// unmountBelow unmounts everything below dir. It fails if a mount remains.
func unmountBelow(dir string) error {
	mounts, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(mounts) {
		if err := unix.Unmount(m, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmounting %s: %w", m, err)
		}
	}
	if mounts, err = mountsBelow(dir); err == nil && len(mounts) > 0 {
		err = fmt.Errorf("%s is still mounted", mounts[0])
	}
	return err
}

// mountsBelow lists the mount points below dir in this process's mount namespace, in the order in which they were
// mounted. It lists none if dir does not exist.
func mountsBelow(dir string) ([]string, error) {
	resolved, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	infos, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return !strings.HasPrefix(m.Mountpoint, resolved+"/"), false
	})
	if err != nil {
		return nil, fmt.Errorf("listing mounts: %w", err)
	}
	mounts := make([]string, len(infos))
	for i, m := range infos {
		mounts[i] = m.Mountpoint
	}
	return mounts, nil
}
