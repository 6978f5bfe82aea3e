package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// rootfs builds a container's root from the host's. The root is an overlay, so that the container's writes go to a
// separate layer. In a user namespace, the kernel denies an overlay of a tree that contains mounts. In this case,
// rootfs rebuilds each directory above the mounts and mounts a separate overlay for each part below. If no overlay can
// show a part, rootfs binds the part read-only or leaves it empty. Nothing is ever written to the host's files.
type rootfs struct {
	spec    *Spec
	dir     string // the container's directory
	root    string // where the new root is being built
	host    []hostMount
	layers  int
	base    []int // file descriptors of the mounts that make up the root, for ReadOnlyRoot
	remarks []string
}

// build builds the root and enters it. The caller must be alone in its mount namespace.
func (r *rootfs) build() error {
	var err error
	if r.dir, err = os.Getwd(); err != nil {
		return err
	}
	r.root = path.Join(r.dir, "root")
	// The shim opens the sources before the mounts become slaves, because a bidirectional mount must stay a peer of the
	// host's.
	sources, err := openSources(r.spec.Mounts)
	if err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if r.host, err = hostMounts(append([]string{"/proc", "/sys", "/dev", r.dir}, r.spec.Hide...)); err != nil {
		return err
	}
	for _, d := range []string{r.root, path.Join(r.dir, "layer")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	if err := r.showHost(); err != nil {
		return err
	}
	if err := r.hide(); err != nil {
		return err
	}
	if err := r.kernelFilesystems(); err != nil {
		return err
	}
	if err := enter(r.root); err != nil {
		return err
	}
	if err := attach(r.spec.Mounts, sources, r.spec.Hide); err != nil {
		return err
	}
	if err := r.protectKernelFiles(); err != nil {
		return err
	}
	return r.finishReadOnly()
}

// showHost mounts the host's root and the file systems below it at r.root.
func (r *rootfs) showHost() error {
	err := r.overlay("/")
	if err != nil && !r.layerUsable() {
		// The state directory's file system cannot hold a layer, for example because it is an overlay. Memory can.
		if e := unix.Mount("layer", path.Join(r.dir, "layer"), "tmpfs", 0, "mode=755"); e == nil {
			r.remarks = append(r.remarks, "the container's files are kept in memory: the state directory cannot hold an overlay")
			err = r.overlay("/")
		}
	}
	if err != nil {
		if e := unix.Mount("root", r.root, "tmpfs", 0, "mode=755"); e != nil {
			return fmt.Errorf("mounting a root: %w", e)
		}
		if e := r.addBase("/"); e != nil {
			return e
		}
		return r.rebuild("/")
	}
	for _, m := range r.host {
		if m.path != "/" && (m.readOnly || r.overlay(m.path) != nil) {
			_ = r.bindReadOnly(m.path, false) // a mount that cannot be shown stays empty
		}
	}
	return nil
}

// rebuild fills directory p of the new root with the entries of the host's p.
func (r *rootfs) rebuild(p string) error {
	entries, err := os.ReadDir(p)
	if err != nil {
		return err
	}
	return r.rebuildEntries(p, entries)
}

// rebuildEntries shows entries of the host's directory p. It leaves out an entry that was deleted in the meantime, as
// happens in /tmp.
func (r *rootfs) rebuildEntries(p string, entries []fs.DirEntry) error {
	for _, e := range entries {
		name := path.Join(p, e.Name())
		err := r.rebuildEntry(name, e)
		if err == nil {
			continue
		}
		if _, gone := os.Lstat(name); !errors.Is(gone, fs.ErrNotExist) {
			return fmt.Errorf("showing %s: %w", name, err)
		}
		if err := os.Remove(r.root + name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("leaving out %s: %w", name, err)
		}
	}
	return nil
}

// rebuildEntry shows one entry of a host's directory in the new root.
func (r *rootfs) rebuildEntry(p string, e fs.DirEntry) error {
	to := r.root + p
	switch {
	case e.Type()&fs.ModeSymlink != 0:
		link, err := os.Readlink(p)
		if err != nil {
			return err
		}
		return os.Symlink(link, to)
	case !e.IsDir():
		if err := os.WriteFile(to, nil, 0o644); err != nil {
			return err
		}
		_ = r.bindReadOnly(p, false) // a file that cannot be bound, such as another user's socket, stays empty
		return nil
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	if p == "/proc" || p == "/sys" || p == "/dev" || slices.Contains(r.spec.Hide, p) {
		return nil
	}
	return r.rebuildDirectory(p)
}

// rebuildDirectory shows one directory of the host in the new root: as an overlay, rebuilt, read-only, or empty.
func (r *rootfs) rebuildDirectory(p string) error {
	st, err := os.Stat(p)
	if err != nil {
		return err
	}
	if err := os.Chmod(r.root+p, st.Mode()); err != nil {
		return err
	}
	if _, err := os.ReadDir(p); errors.Is(err, fs.ErrPermission) {
		return nil // a directory of another user, such as /root, stays empty
	}
	if r.overlay(p) == nil {
		return nil
	}
	for _, m := range r.host {
		if within(m.path, p) && m.path != p {
			return r.rebuild(p)
		}
	}
	if st.Mode()&fs.ModeSticky != 0 {
		return nil // a shared directory, such as /tmp, stays empty and writable
	}
	r.remarks = append(r.remarks, p+" is read-only: no overlay can be made of it")
	return r.bindReadOnly(p, true)
}

// overlay mounts an overlay of the host's directory p, with a layer of the container, at the same path in the new root.
func (r *rootfs) overlay(p string) error {
	if strings.ContainsAny(p, `:,\"`) {
		return errors.New("the path has characters that mount options cannot hold")
	}
	st, err := os.Stat(p)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return unix.ENOTDIR
	}
	upper, work, err := r.newLayer(st)
	if err != nil {
		return err
	}
	// The layer is deleted with the container, so "volatile" avoids syncing it to disk.
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,volatile", p, upper, work)
	if r.spec.Rootless {
		options += ",userxattr" // trusted.* attributes belong to the host's root
	}
	// nodev disables device files that the command creates with mknod.
	if err := unix.Mount("overlay", r.root+p, "overlay", unix.MS_NODEV, options); err != nil {
		return err
	}
	return r.addBase(p)
}

// newLayer creates the upper and the work directory of one overlay. The paths are relative to the container's
// directory, which is the working directory until the root is entered, so they need no escaping.
func (r *rootfs) newLayer(lower fs.FileInfo) (upper, work string, err error) {
	n := strconv.Itoa(r.layers)
	r.layers++
	upper, work = path.Join("layer", n, "upper"), path.Join("layer", n, "work")
	for _, d := range []string{upper, work} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return "", "", err
		}
	}
	if s, ok := lower.Sys().(*syscall.Stat_t); ok && !r.spec.Rootless {
		if err := os.Chown(upper, int(s.Uid), int(s.Gid)); err != nil {
			return "", "", err
		}
	}
	return upper, work, os.Chmod(upper, lower.Mode())
}

// layerUsable reports whether the container's directory can hold the layer of an overlay.
func (r *rootfs) layerUsable() bool {
	st, err := os.Stat("layer")
	if err != nil {
		return false
	}
	upper, work, err := r.newLayer(st)
	if err != nil {
		return false
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", path.Dir(upper), upper, work)
	if r.spec.Rootless {
		options += ",userxattr"
	}
	if unix.Mount("overlay", r.root, "overlay", 0, options) != nil {
		return false
	}
	return unix.Unmount(r.root, unix.MNT_DETACH) == nil
}

// bindReadOnly binds the host's path p read-only at the same path in the new root.
func (r *rootfs) bindReadOnly(p string, recursive bool) error {
	return bind(p, r.root+p, recursive, unix.MOUNT_ATTR_RDONLY)
}

// addBase records the mount at p of the new root for finishReadOnly. It keeps a file descriptor, because a later mount
// can cover the path.
func (r *rootfs) addBase(p string) error {
	if !r.spec.ReadOnlyRoot {
		return nil
	}
	fd, err := unix.Open(r.root+p, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == nil {
		r.base = append(r.base, fd)
	}
	return err
}

// finishReadOnly makes the mounts that addBase recorded read-only. Volumes are not among them.
func (r *rootfs) finishReadOnly() error {
	for _, fd := range r.base {
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
			return fmt.Errorf("making the root read-only: %w", err)
		}
		unix.Close(fd)
	}
	return nil
}

// hide covers the directories that no container may read, such as the directory with the cluster's keys.
func (r *rootfs) hide() error {
	for _, h := range r.spec.Hide {
		if err := coverWithEmpty(r.root + h); err != nil {
			return err
		}
	}
	return nil
}

// enter makes root the root directory and unmounts the old one.
func enter(root string) error {
	old, err := unix.Open("/", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(old)
	if err := os.Chdir(root); err != nil {
		return err
	}
	// If both arguments are the same, the old root is mounted over the new one, and no directory is needed for it.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Fchdir(old); err != nil {
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("dropping the host's root: %w", err)
	}
	return os.Chdir("/")
}
