package cri

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

	"batch.tensorstack.dev/shim"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// cleanupPatience bounds the wait for processes that were killed; one in the middle of a disk access can take long.
const cleanupPatience = 30 * time.Second

// Cleanup ends what a server that no longer runs left behind: processes, mounts, network devices and the bridge, as
// far as the files in cfg.Root tell that they are its own. The records of containers stay, so that the next server
// reports how they ended; the directory may be removed afterwards. It fails while a server uses cfg.Root, and may
// be repeated at any time.
func Cleanup(cfg Config) error {
	if err := cfg.complete(); err != nil {
		return err
	}
	if _, err := os.Stat(cfg.Root); os.IsNotExist(err) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupPatience)
	defer cancel()
	unlock, err := lock(ctx, cfg.Root)
	if err != nil {
		return err
	}
	defer unlock()
	containers, err := names(cfg.containers())
	if err != nil {
		return err
	}
	sandboxes, err := names(cfg.sandboxes())
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range containers {
		if err := endContainer(ctx, cfg.containerDir(id)); err != nil {
			errs = append(errs, fmt.Errorf("ending container %s: %w", id, err))
		}
	}
	for _, id := range sandboxes {
		if err := endSandbox(ctx, cfg, id); err != nil {
			errs = append(errs, fmt.Errorf("ending sandbox %s: %w", id, err))
		}
	}
	errs = append(errs, unmountBelow(cfg.Root), removeBridge(cfg))
	return errors.Join(errs...)
}

func endContainer(ctx context.Context, dir string) error {
	var st containerState
	if err := readJSON(filepath.Join(dir, stateFile), &st); err != nil {
		if os.IsNotExist(err) {
			return nil
		}
		return err
	}
	p, err := st.Process.open()
	if err != nil {
		return nil //nolint:nilerr // it ended
	}
	defer p.close()
	// As long as this is open, no other mount namespace can have the container's number.
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", st.Process.PID))
	if err != nil {
		return err
	}
	defer ns.Close()
	if conn, err := dialControl(dir); err == nil {
		_, _ = conn.Write([]byte{shim.ControlKill})
		conn.Close()
		patience, cancel := context.WithTimeout(ctx, killPatience)
		_, _, _ = p.wait(patience)
		cancel()
	}
	if err := p.kill(ctx); err != nil {
		return err
	}
	return killInside(ctx, ns)
}

// killInside ends the processes of a mount namespace: what was started in a container by exec, where the PID
// namespace is the host's and does not end with the container.
func killInside(ctx context.Context, ns *os.File) error {
	var want unix.Stat_t
	if err := unix.Fstat(int(ns.Fd()), &want); err != nil {
		return err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
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
		if unix.Stat(fmt.Sprintf("/proc/%d/ns/mnt", pid), &st) == nil && st.Ino == want.Ino && st.Dev == want.Dev {
			err = p.kill(ctx)
		}
		p.close()
		if err != nil {
			return err
		}
	}
	return nil
}

func endSandbox(ctx context.Context, cfg Config, id string) error {
	if len(id) != len(newID()) {
		return nil // not ours
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
	return errors.Join(unplug(id), release(dir))
}

// removeBridge removes the bridge if the runtime made it.
func removeBridge(cfg Config) error {
	link, err := netlink.LinkByName(cfg.Bridge)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil
	}
	if err != nil {
		return err
	}
	if mine, err := ownBridge(cfg, link); err != nil || !mine {
		return err
	}
	if err := netlink.LinkDel(link); err != nil {
		return fmt.Errorf("removing the bridge %s: %w", cfg.Bridge, err)
	}
	return nil
}

// unmountBelow unmounts everything below dir, a directory of ours, and leaves dir itself.
func unmountBelow(dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var found []string
	for line := range bytes.Lines(b) {
		f := strings.Fields(string(line))
		if len(f) < 5 {
			continue
		}
		if p := unescape(f[4]); p != real && within(p, real) {
			found = append(found, p)
		}
	}
	slices.Reverse(found) // the last mounted first
	for _, p := range found {
		if err := unix.Unmount(p, unix.MNT_DETACH); err != nil && err != unix.EINVAL && err != unix.ENOENT {
			return fmt.Errorf("unmounting %s: %w", p, err)
		}
	}
	return nil
}

// unescape undoes the octal escapes of the kernel's tables.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// removeAll removes a directory of ours, but never anything that is still mounted in it.
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
