package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The kubelet writes to some paths of the machine that its configuration cannot change. Therefore the machine process
// of a cluster with a node runs in a separate mount namespace, in which other mounts cover these paths. The kernel
// removes the namespace with its last process, so nothing has to be undone.

// lockVariable is the environment variable that shows a process that it already runs in the namespaces. It contains the
// file descriptor of the directory's lock.
const lockVariable = "T9K_LOCAL_LOCK"

// Enter takes the directory's lock and, if the cluster has a node, moves this process into its own namespaces. To do
// so, it runs this program again with the same arguments; it then returns in the old program only if it fails. The lock
// is held until the caller closes the returned file or exits.
func Enter(ctx context.Context, d Dir) (lock *os.File, err error) {
	if fd, err := strconv.Atoi(os.Getenv(lockVariable)); err == nil {
		unix.CloseOnExec(fd) // a child that outlives this process must not hold the lock
		return os.NewFile(uintptr(fd), d.lockFile()), os.Unsetenv(lockVariable)
	}
	if lock, err = d.lockWithRetry(ctx); err != nil {
		return nil, err
	}
	c, err := d.Load()
	if err == nil && c.hasNode() {
		err = enterNamespaces(d, c, lock)
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

// enterNamespaces runs this program again in new namespaces. It returns only if it fails.
func enterNamespaces(d Dir, c *Config, lock *os.File) error {
	if c.Rootless {
		code, err := runInUserNamespace(d, c, lock)
		if err == nil {
			os.Exit(code)
		}
		return err
	}
	if c.Runtime == RuntimeContainerd {
		if err := shareVolumes(d); err != nil {
			return err
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("making a mount namespace: %w", err)
	}
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	inherited, err := unix.Dup(int(lock.Fd())) // the duplicate is not closed on exec
	if err != nil {
		return err
	}
	err = unix.Exec(binary, os.Args, append(os.Environ(), lockVariable+"="+strconv.Itoa(inherited)))
	return fmt.Errorf("starting %s in its mount namespace: %w", binary, err)
}

// kubeletSysctls are the sysctls that the kubelet sets, with the values that it sets
// (k8s.io/component-helpers/node/util/sysctl).
var kubeletSysctls = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// coverKubeletPaths mounts private directories and files over the paths of the machine that the kubelet writes to, in
// this process's mount namespace. Mounts of the machine still propagate into the namespace. Mounts in the namespace do
// not propagate out, except volumes for containerd (shareVolumes).
func coverKubeletPaths(d Dir, c *Config) error {
	volumes := -1
	if c.Runtime == RuntimeContainerd {
		var err error
		if volumes, err = unix.OpenTree(unix.AT_FDCWD, d.kubeletRoot(), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC); err != nil {
			return fmt.Errorf("keeping the volumes shared: %w", err)
		}
		defer unix.Close(volumes)
	}
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("separating the mounts: %w", err)
	}
	if volumes >= 0 {
		if err := unix.MoveMount(volumes, "", unix.AT_FDCWD, d.kubeletRoot(), unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("keeping the volumes shared: %w", err)
		}
	}
	if err := coverDirectory(d, "/var/lib/kubelet"); err != nil {
		return err
	}
	// The kubelet creates links in this directory only if it exists.
	if _, err := os.Stat("/var/log/containers"); err == nil {
		if err := coverDirectory(d, "/var/log/containers"); err != nil {
			return err
		}
	}
	if c.Rootless {
		return nil // in a user namespace, the kernel does not allow sysctls to be changed
	}
	return coverSysctls(d)
}

// shareVolumes unmounts everything below the cluster's directory and makes the kubelet's directory a shared mount.
// containerd runs in the machine's mount namespace and must see the volumes that the kubelet mounts in its own.
func shareVolumes(d Dir) error {
	if err := unmountBelow(string(d)); err != nil {
		return err
	}
	if err := os.MkdirAll(d.kubeletRoot(), 0o750); err != nil {
		return err
	}
	if err := unix.Mount(d.kubeletRoot(), d.kubeletRoot(), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("sharing the volumes: %w", err)
	}
	if err := unix.Mount("", d.kubeletRoot(), "", unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("sharing the volumes: %w", err)
	}
	return nil
}

// coverSysctls mounts files with the wanted values over the sysctls, so that the kubelet has nothing to change.
func coverSysctls(d Dir) error {
	dir := d.join("sysctl")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, value := range kubeletSysctls {
		target := filepath.Join("/proc/sys", name)
		if _, err := os.Stat(target); errors.Is(err, os.ErrNotExist) {
			continue // the kernel lacks this sysctl, which the kubelet reports
		}
		file := filepath.Join(dir, strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o600); err != nil {
			return err
		}
		if err := unix.Mount(file, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("covering %s: %w", target, err)
		}
	}
	return nil
}

// coverDirectory mounts an empty directory over path. If path does not exist, coverDirectory first covers its parent
// with a copy, so that path is not created on the machine.
func coverDirectory(d Dir, path string) error {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if err := coverWithCopy(d, filepath.Dir(path)); err != nil {
			return err
		}
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("t9k-local", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("covering %s: %w", path, err)
	}
	return nil
}

// coverWithCopy mounts a new directory over path and binds every entry of the original into it.
func coverWithCopy(d Dir, path string) error {
	original := d.join("original")
	if err := os.MkdirAll(original, 0o700); err != nil {
		return err
	}
	if err := unix.Mount(path, original, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("keeping %s: %w", path, err)
	}
	info, err := os.Stat(original)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(original)
	if err != nil {
		return err
	}
	options := fmt.Sprintf("mode=%o", info.Mode().Perm())
	if err := unix.Mount("t9k-local", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("covering %s: %w", path, err)
	}
	for _, e := range entries {
		if err := bindEntry(filepath.Join(original, e.Name()), filepath.Join(path, e.Name()), e.Type()); err != nil {
			return fmt.Errorf("covering %s: %w", path, err)
		}
	}
	if err := unix.Unmount(original, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("covering %s: %w", path, err)
	}
	return os.Remove(original)
}

// bindEntry makes the contents of from visible at to. It copies symbolic links and bind-mounts everything else.
func bindEntry(from, to string, kind os.FileMode) error {
	switch {
	case kind&os.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case kind.IsDir():
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
	default:
		if err := os.WriteFile(to, nil, 0o600); err != nil {
			return err
		}
	}
	return unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")
}
