package shim

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// kernelFilesystems mounts /proc, /sys and /dev in the new root.
func (r *rootfs) kernelFilesystems() error {
	for _, d := range []string{"/proc", "/sys", "/dev"} {
		if err := os.MkdirAll(r.root+d, 0o755); err != nil {
			return err
		}
	}
	if err := r.proc(); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	if err := r.sys(); err != nil {
		return fmt.Errorf("mounting /sys: %w", err)
	}
	if err := r.dev(); err != nil {
		return fmt.Errorf("making /dev: %w", err)
	}
	return nil
}

// proc mounts /proc: a new one for the container's PID namespace, or the host's.
func (r *rootfs) proc() error {
	if !r.spec.HostPID {
		err := unix.Mount("proc", r.root+"/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
		if err == nil {
			return nil
		}
		// If a container's own /proc is partly covered, the kernel denies a new one.
		r.remarks = append(r.remarks, "/proc shows the host's processes: the kernel allows no new one here")
	}
	return bind("/proc", r.root+"/proc", true, 0)
}

// sys mounts /sys, read-only unless the container is privileged.
func (r *rootfs) sys() error {
	flags, attributes := uintptr(unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY), uint64(unix.MOUNT_ATTR_RDONLY)
	if r.spec.Privileged {
		flags, attributes = flags&^unix.MS_RDONLY, 0
	}
	// A new sysfs shows the network devices of the pod's network namespace.
	if r.spec.HostNet || unix.Mount("sysfs", r.root+"/sys", "sysfs", flags, "") != nil {
		return bind("/sys", r.root+"/sys", true, attributes)
	}
	if _, err := os.Stat("/sys/fs/cgroup"); err != nil {
		return nil
	}
	return bind("/sys/fs/cgroup", r.root+"/sys/fs/cgroup", true, attributes)
}

// dev creates the container's own /dev, so that changes in it do not reach the host. It contains the host's character
// devices, such as accelerators, but not its terminals. A privileged container gets all devices.
func (r *rootfs) dev() error {
	dev := r.root + "/dev"
	if err := unix.Mount("dev", dev, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=64k"); err != nil {
		return err
	}
	entries, err := os.ReadDir("/dev")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := r.device(e); err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
		}
	}
	if err := r.terminals(); err != nil {
		return fmt.Errorf("pts: %w", err)
	}
	for _, l := range [][2]string{{"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"}, {"/proc/self/fd/2", "stderr"}} {
		if err := os.Symlink(l[0], path.Join(dev, l[1])); err != nil && !os.IsExist(err) {
			return err
		}
	}
	for _, d := range []string{"shm", "mqueue"} {
		if err := os.Mkdir(path.Join(dev, d), 0o755); err != nil {
			return err
		}
	}
	// Message queues belong to the IPC namespace. A kernel without them only lacks this mount.
	_ = unix.Mount("mqueue", dev+"/mqueue", "mqueue", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	if err := bind(r.spec.Shm, dev+"/shm", false, 0); err != nil {
		return fmt.Errorf("shm: %w", err)
	}
	return nil
}

// device adds one entry of the host's /dev to the container's.
func (r *rootfs) device(e fs.DirEntry) error {
	from, to := "/dev/"+e.Name(), r.root+"/dev/"+e.Name()
	switch {
	case ownDevices[e.Name()]:
		return nil
	case e.Type()&fs.ModeSymlink != 0:
		link, err := os.Readlink(from)
		if err != nil {
			return nil // deleted in the meantime
		}
		return os.Symlink(link, to)
	case e.IsDir():
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
	case e.Type()&fs.ModeDevice == 0, !r.spec.Privileged && !isPublicDevice(e):
		return nil
	default:
		if err := unix.Mknod(to, unix.S_IFREG|0o600, 0); err != nil {
			return err
		}
	}
	_ = bind(from, to, e.IsDir(), 0) // a device that cannot be bound stays an empty file
	return nil
}

// ownDevices are the names of the entries that dev does not take from the host's /dev. It creates some of them anew.
var ownDevices = map[string]bool{"shm": true, "mqueue": true, "pts": true, "ptmx": true, "console": true, "log": true}

// isPublicDevice reports whether every container may have a device: a character device that is not a terminal of the
// machine.
func isPublicDevice(e fs.DirEntry) bool {
	terminal := e.Name() != "tty" && (strings.HasPrefix(e.Name(), "tty") || strings.HasPrefix(e.Name(), "vcs"))
	return e.Type()&fs.ModeCharDevice != 0 && !terminal
}

// terminals mounts a new instance of devpts, so that the container has its own pseudo terminals.
func (r *rootfs) terminals() error {
	pts := r.root + "/dev/pts"
	if err := os.Mkdir(pts, 0o755); err != nil {
		return err
	}
	options := "newinstance,ptmxmode=0666,mode=0620"
	if !r.spec.Rootless {
		options += ",gid=5" // the tty group, on every common system
	}
	if err := unix.Mount("devpts", pts, "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, options); err != nil {
		return err
	}
	return os.Symlink("pts/ptmx", r.root+"/dev/ptmx")
}

// protectKernelFiles masks the paths through which a container could read or change the host's kernel, or makes them
// read-only. It runs in the new root.
func (r *rootfs) protectKernelFiles() error {
	for _, p := range r.spec.MaskedPaths {
		st, err := os.Stat(p)
		if err != nil {
			continue
		}
		if st.IsDir() {
			err = unix.Mount("masked", p, "tmpfs", unix.MS_RDONLY, "size=4k")
		} else {
			err = bind("/dev/null", p, false, 0)
		}
		if err != nil {
			return fmt.Errorf("masking %s: %w", p, err)
		}
	}
	for _, p := range r.spec.ReadOnlyPaths {
		if _, err := os.Stat(p); err != nil {
			continue
		}
		if err := bind(p, p, true, unix.MOUNT_ATTR_RDONLY); err != nil {
			return fmt.Errorf("making %s read-only: %w", p, err)
		}
	}
	return nil
}
