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

// rootfs builds a container's root from the host's: an overlay, so that what the container writes stays in its own
// layer. Where no overlay can be made of the whole (a user namespace may not take a tree apart that has mounts in
// it), the directories above the mounts are rebuilt one by one and each part below gets its own overlay. What no
// overlay can hold is bound read-only: the host is never written to.
type rootfs struct {
	spec    *Spec
	dir     string // the container's directory
	root    string // where the new root is being built
	host    []hostMount
	layers  int
	base    []int // the mounts that make up the root, for ReadOnlyRoot
	remarks []string
}

// build makes the root and enters it. The caller is alone in its mount namespace.
func (r *rootfs) build() error {
	var err error
	if r.dir, err = os.Getwd(); err != nil {
		return err
	}
	r.root = path.Join(r.dir, "root")
	// Before the mounts turn into slaves: a mount with bidirectional propagation must stay the host's peer.
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
	if err := r.protect(); err != nil {
		return err
	}
	return r.finishReadOnly()
}

// showHost shows the host's root and the file systems mounted below it at r.root.
func (r *rootfs) showHost() error {
	err := r.overlay("/")
	if err != nil && !r.layerUsable() {
		// The state directory's file system cannot hold a layer (it is itself an overlay, say): use memory.
		if e := unix.Mount("layer", path.Join(r.dir, "layer"), "tmpfs", 0, "mode=755"); e == nil {
			r.remarks = append(r.remarks, "the container's files are kept in memory: the state directory cannot hold an overlay")
			err = r.overlay("/")
		}
	}
	if err != nil {
		if e := unix.Mount("root", r.root, "tmpfs", 0, "mode=755"); e != nil {
			return fmt.Errorf("mounting a root: %w", e)
		}
		if e := r.pinBase("/"); e != nil {
			return e
		}
		return r.rebuild("/")
	}
	for _, m := range r.host {
		if m.path != "/" && (m.readOnly || r.overlay(m.path) != nil) {
			_ = r.bindReadOnly(m.path, false) // a mount that neither can show stays empty
		}
	}
	return nil
}

// rebuild fills the directory p of the new root with the entries of the host's.
func (r *rootfs) rebuild(p string) error {
	entries, err := os.ReadDir(p)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := r.rebuildEntry(path.Join(p, e.Name()), e); err != nil {
			return fmt.Errorf("showing %s: %w", path.Join(p, e.Name()), err)
		}
	}
	return nil
}

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
		_ = r.bindReadOnly(p, false) // sockets and the like of others may refuse: they stay empty files
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

func (r *rootfs) rebuildDirectory(p string) error {
	st, err := os.Stat(p)
	if err != nil {
		return err
	}
	if err := os.Chmod(r.root+p, st.Mode()); err != nil {
		return err
	}
	if _, err := os.ReadDir(p); errors.Is(err, fs.ErrPermission) {
		return nil // another user's, such as /root: an empty one of our own
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
		return nil // a directory for everybody's files, such as /tmp: empty and writable rather than read-only
	}
	r.remarks = append(r.remarks, p+" is read-only: no overlay can be made of it")
	return r.bindReadOnly(p, true)
}

// overlay shows the host's directory p at the same place of the new root, with a layer of the container above it.
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
	// Nobody needs the layer after the container: "volatile" spares the disk from writing it out at the end.
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,volatile", p, upper, work)
	if r.spec.Rootless {
		options += ",userxattr" // trusted.* attributes belong to the host's root
	}
	// nodev: devices appear only in /dev, whatever the command makes by mknod.
	if err := unix.Mount("overlay", r.root+p, "overlay", unix.MS_NODEV, options); err != nil {
		return err
	}
	return r.pinBase(p)
}

// newLayer makes the pair of directories of one overlay. Their paths are relative to the container's directory, the
// working directory until the root is entered, so that its name needs no escaping.
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

// layerUsable tells whether the container's directory can hold an overlay's layer at all.
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

func (r *rootfs) bindReadOnly(p string, recursive bool) error {
	return bind(p, r.root+p, recursive, unix.MOUNT_ATTR_RDONLY)
}

// pinBase remembers the mount at p of the new root: by its path it could later be taken for one made over it.
func (r *rootfs) pinBase(p string) error {
	if !r.spec.ReadOnlyRoot {
		return nil
	}
	fd, err := unix.Open(r.root+p, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == nil {
		r.base = append(r.base, fd)
	}
	return err
}

// finishReadOnly makes the root read-only, after everything was put in its place, and not the volumes in it.
func (r *rootfs) finishReadOnly() error {
	for _, fd := range r.base {
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
			return fmt.Errorf("making the root read-only: %w", err)
		}
		unix.Close(fd)
	}
	return nil
}

// hide covers the directories that no container may look into; the keys of the cluster are in one.
func (r *rootfs) hide() error {
	for _, h := range r.spec.Hide {
		if err := cover(r.root + h); err != nil {
			return err
		}
	}
	return nil
}

// enter makes root the root directory and drops the old one.
func enter(root string) error {
	old, err := unix.Open("/", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(old)
	if err := os.Chdir(root); err != nil {
		return err
	}
	// With both arguments the same, the old root ends up on top of the new one: no directory is needed to put it.
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
