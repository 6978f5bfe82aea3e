package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// cleanupTimeout limits the wait for killed processes. A process in the middle of a disk access can take long to exit.
const cleanupTimeout = 30 * time.Second

// Cleanup removes what a server that no longer runs left behind: processes, mounts, network devices and the bridge. It
// removes only what belongs to the server according to the files in cfg.Root. It keeps the records of containers, so
// that the next server can report their exits; the caller may delete the directory afterwards. Cleanup fails while a
// server uses cfg.Root, and can be repeated.
func Cleanup(ctx context.Context, cfg Config) error {
	if err := cfg.complete(); err != nil {
		return err
	}
	if _, err := os.Stat(cfg.Root); os.IsNotExist(err) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	unlock, err := lock(ctx, cfg.Root)
	if err != nil {
		return err
	}
	defer unlock()
	containers, err := entryNames(cfg.containers())
	if err != nil {
		return err
	}
	sandboxes, err := entryNames(cfg.sandboxes())
	if err != nil {
		return err
	}
	errs := []error{endContainers(ctx, cfg, containers)}
	for _, id := range sandboxes {
		if err := endSandbox(ctx, cfg, id); err != nil {
			errs = append(errs, fmt.Errorf("ending sandbox %s: %w", id, err))
		}
	}
	errs = append(errs, unmountBelow(cfg.Root), removeBridge(cfg))
	return errors.Join(errs...)
}

// endingContainer is a container whose shim was asked to kill the container.
type endingContainer struct {
	id      string
	process *process
	// mounts is the mount namespace of the container. While the file is open, the kernel cannot reuse the namespace's
	// inode number.
	mounts *os.File
}

// endContainers kills the running containers, all at the same time, and then every process that remains in their mount
// namespaces.
func endContainers(ctx context.Context, cfg Config, ids []string) error {
	var list []endingContainer
	var errs []error
	for _, id := range ids {
		d, err := startKill(cfg.containerDir(id))
		switch {
		case errors.Is(err, errGone):
		case err != nil:
			errs = append(errs, fmt.Errorf("ending container %s: %w", id, err))
		default:
			d.id = id
			list = append(list, d)
		}
	}
	// The shims have already been asked to kill their commands, so they need only time to record the exit.
	reportCtx, cancel := context.WithTimeout(ctx, killReportTimeout)
	defer cancel()
	namespaces := map[uint64]bool{}
	for _, d := range list {
		defer d.process.close()
		defer d.mounts.Close()
		_, _, _ = d.process.wait(reportCtx)
		if err := d.process.kill(ctx); err != nil {
			errs = append(errs, fmt.Errorf("ending container %s: %w", d.id, err))
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(d.mounts.Fd()), &st); err != nil {
			errs = append(errs, err)
			continue
		}
		namespaces[st.Ino] = true
	}
	return errors.Join(append(errs, killInNamespaces(ctx, namespaces))...)
}

// startKill asks the shim of the container in dir to kill the container. It returns errGone if nothing runs. The caller
// must close the process and the mount namespace of the result.
func startKill(dir string) (endingContainer, error) {
	var st containerState
	if err := readJSON(filepath.Join(dir, stateFile), &st); err != nil {
		if os.IsNotExist(err) {
			return endingContainer{}, errGone // created only in part, so nothing was started
		}
		return endingContainer{}, err
	}
	p, err := st.Process.open()
	if err != nil {
		return endingContainer{}, err
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", st.Process.PID))
	if err != nil {
		if p.ended() {
			err = errGone
		}
		p.close()
		return endingContainer{}, err
	}
	_ = askToKill(dir) // endContainers kills the shim if this fails
	return endingContainer{process: p, mounts: ns}, nil
}

// killInNamespaces kills every process in the given mount namespaces, which are identified by their inode numbers. This
// ends the processes that exec started in a container with the host's PID namespace, because those do not end with the
// container.
func killInNamespaces(ctx context.Context, namespaces map[uint64]bool) error {
	if len(namespaces) == 0 {
		return nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		id, err := identify(pid)
		if err != nil {
			continue
		}
		p, err := id.open()
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(fmt.Sprintf("/proc/%d/ns/mnt", pid), &st) == nil && namespaces[st.Ino] {
			errs = append(errs, p.kill(ctx))
		}
		p.close()
	}
	return errors.Join(errs...)
}

// endSandbox kills the sandbox's pause process and removes its network device and mounts.
func endSandbox(ctx context.Context, cfg Config, id string) error {
	if len(id) != len(newID()) {
		return nil // not a directory of this runtime
	}
	dir := cfg.sandboxDir(id)
	var st sandboxState
	if err := readJSON(filepath.Join(dir, stateFile), &st); err != nil && !os.IsNotExist(err) {
		return err
	}
	if p, err := st.Pause.open(); err == nil {
		err := p.kill(ctx)
		p.close()
		if err != nil {
			return err
		}
	}
	return errors.Join(removeVeth(id), unmountNamespaces(dir))
}

// removeBridge removes the bridge if this runtime created it.
func removeBridge(cfg Config) error {
	link, err := netlink.LinkByName(cfg.Bridge)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil
	}
	if err != nil {
		return err
	}
	if mine, err := isOwnBridge(cfg, link); err != nil || !mine {
		return err
	}
	if err := netlink.LinkDel(link); err != nil {
		return fmt.Errorf("removing the bridge %s: %w", cfg.Bridge, err)
	}
	return nil
}

// unmountBelow unmounts everything below dir, but not dir itself. It ignores mounts that disappear in the meantime.
func unmountBelow(dir string) error {
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.Mountpoint == resolved || !within(m.Mountpoint, resolved), false
	})
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(mounts) { // a later mount can be below an earlier one
		if err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH); err != nil && err != unix.EINVAL && err != unix.ENOENT {
			return fmt.Errorf("unmounting %s: %w", m.Mountpoint, err)
		}
	}
	return nil
}

// removeAll deletes a directory below Config.Root. It unmounts everything in the directory first, so that it never
// deletes files of a mount.
func removeAll(dir string) error {
	if _, err := os.Lstat(dir); os.IsNotExist(err) {
		return nil
	}
	if err := unmountBelow(dir); err != nil {
		return err
	}
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	// An overlay's work directory denies access even to its owner.
	_ = filepath.WalkDir(dir, func(p string, e fs.DirEntry, _ error) error {
		if e != nil && e.IsDir() {
			_ = os.Chmod(p, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}
