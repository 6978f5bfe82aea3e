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

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// cleanupPatience bounds the wait for processes that were killed; one in the middle of a disk access can take long.
const cleanupPatience = 30 * time.Second

// Cleanup ends what a server that no longer runs left behind: processes, mounts, network devices and the bridge, as
// far as the files in cfg.Root tell that they are its own. The records of containers stay, so that the next server
// reports how they ended; the directory may be removed afterwards. It fails while a server uses cfg.Root, and may
// be repeated at any time.
func Cleanup(ctx context.Context, cfg Config) error {
	if err := cfg.complete(); err != nil {
		return err
	}
	if _, err := os.Stat(cfg.Root); os.IsNotExist(err) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupPatience)
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
	errs := []error{endContainers(ctx, cfg, containers)}
	for _, id := range sandboxes {
		if err := endSandbox(ctx, cfg, id); err != nil {
			errs = append(errs, fmt.Errorf("ending sandbox %s: %w", id, err))
		}
	}
	errs = append(errs, unmountBelow(cfg.Root), removeBridge(cfg))
	return errors.Join(errs...)
}

// doomed is a container that is being ended.
type doomed struct {
	id      string
	process *process
	// As long as this is open, no other mount namespace can have the container's number.
	mounts *os.File
}

// endContainers ends the containers that run, all at the same time.
func endContainers(ctx context.Context, cfg Config, ids []string) error {
	var list []doomed
	var errs []error
	for _, id := range ids {
		d, err := condemn(cfg.containerDir(id))
		switch {
		case errors.Is(err, errGone):
		case err != nil:
			errs = append(errs, fmt.Errorf("ending container %s: %w", id, err))
		default:
			d.id = id
			list = append(list, d)
		}
	}
	// The shims were asked to end what they run and to record it; they need no more than a moment.
	patience, cancel := context.WithTimeout(ctx, killPatience)
	defer cancel()
	inside := map[uint64]bool{}
	for _, d := range list {
		defer d.process.close()
		defer d.mounts.Close()
		_, _, _ = d.process.wait(patience)
		if err := d.process.kill(ctx); err != nil {
			errs = append(errs, fmt.Errorf("ending container %s: %w", d.id, err))
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(d.mounts.Fd()), &st); err != nil {
			errs = append(errs, err)
			continue
		}
		inside[st.Ino] = true
	}
	return errors.Join(append(errs, killInside(ctx, inside))...)
}

// condemn asks the shim of the container in dir to end it, or returns errGone.
func condemn(dir string) (doomed, error) {
	var st containerState
	if err := readJSON(filepath.Join(dir, stateFile), &st); err != nil {
		if os.IsNotExist(err) {
			return doomed{}, errGone // half-made: nothing was started
		}
		return doomed{}, err
	}
	p, err := st.Process.open()
	if err != nil {
		return doomed{}, err
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", st.Process.PID))
	if err != nil {
		if p.ended() {
			err = errGone
		}
		p.close()
		return doomed{}, err
	}
	_ = askToKill(dir) // endContainers sees whether it did
	return doomed{process: p, mounts: ns}, nil
}

// killInside ends the processes of mount namespaces, given by their numbers: what was started in a container by
// exec, where the PID namespace is the host's and does not end with the container.
func killInside(ctx context.Context, namespaces map[uint64]bool) error {
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
