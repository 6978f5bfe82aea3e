package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// hostMount is a file system of the host that the container's root shows.
type hostMount struct {
	path     string
	readOnly bool
}

// skippedTypes are types of file systems that a container does not need: namespaces, automount points, roots of other
// containers (overlays), and interfaces of the kernel.
var skippedTypes = map[string]bool{"nsfs": true, "autofs": true, "overlay": true, "rpc_pipefs": true, "binfmt_misc": true}

// CoverSource is the source of the mounts with which the cluster hides the machine's directories from its kubelet.
// Containers see the hidden directories instead of these mounts.
const CoverSource = "t9k-local"

// hostMounts lists the mounts of the host that a container sees, parents first: / and the mounts that an overlay of /
// does not show. It omits mounts in the directories in except.
func hostMounts(except []string) ([]hostMount, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(string(b), except), nil
}

// parseMounts returns the mounts of a mountinfo table that hostMounts lists.
func parseMounts(table string, except []string) (out []hostMount) {
	seen, rootDevice := map[string]bool{}, ""
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		sep := 6
		for sep < len(f) && f[sep] != "-" { // optional fields end at a dash
			sep++
		}
		if sep+2 >= len(f) {
			continue
		}
		device, root, p, kind, source := f[2], unescape(f[3]), unescape(f[4]), f[sep+1], f[sep+2]
		if p == "/" && root == "/" {
			rootDevice = device
		}
		switch {
		case seen[p], p != "/" && skippedTypes[kind], withinAny(p, except), kind == "tmpfs" && source == CoverSource:
			continue
		case p != "/" && device == rootDevice && root == p && !insideAny(p, out):
			continue // a directory that is bound to its own path
		}
		seen[p] = true
		out = append(out, hostMount{path: p, readOnly: strings.HasPrefix(f[5], "ro")})
	}
	return out
}

// insideAny reports whether p is inside one of the mounts other than /.
func insideAny(p string, mounts []hostMount) bool {
	for _, m := range mounts {
		if m.path != "/" && within(p, m.path) {
			return true
		}
	}
	return false
}

// unescape decodes the octal escapes of a mountinfo table. The module imports no library for this; doc.go gives the
// reason.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// within reports whether p is dir or below it.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

func withinAny(p string, dirs []string) bool {
	for _, d := range dirs {
		if within(p, d) {
			return true
		}
	}
	return false
}

// cloneTree returns a detached copy of the mount that shows p.
func cloneTree(p string, recursive bool) (int, error) {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	return unix.OpenTree(unix.AT_FDCWD, p, flags)
}

// moveMount mounts a detached mount at a path.
func moveMount(fd int, to string) error {
	return unix.MoveMount(fd, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// bind mounts the tree at from on to, with the given mount attributes.
func bind(from, to string, recursive bool, attributes uint64) error {
	fd, err := cloneTree(from, recursive)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if attributes != 0 {
		flags := uint(unix.AT_EMPTY_PATH)
		if recursive {
			flags |= unix.AT_RECURSIVE
		}
		if err := unix.MountSetattr(fd, "", flags, &unix.MountAttr{Attr_set: attributes}); err != nil {
			return err
		}
	}
	return moveMount(fd, to)
}

// source is the host's side of a mount.
type source struct {
	tree int    // file descriptor of a detached copy of the mount
	path string // without symbolic links
}

// openSources opens the host's side of the mounts. It must run before the root changes, while their paths are the
// host's.
func openSources(mounts []Mount) ([]source, error) {
	out := make([]source, len(mounts))
	for i, m := range mounts {
		fd, err := cloneTree(m.Src, true)
		if err == nil {
			out[i].tree = fd
			out[i].path, err = realPath(m.Src)
		}
		if err != nil {
			return nil, fmt.Errorf("opening the source %s of the mount at %s: %w", m.Src, m.Dst, err)
		}
	}
	return out, nil
}

// realPath returns p without symbolic links.
func realPath(p string) (string, error) {
	fd, err := unix.Open(p, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// attach mounts the sources at their destinations, and covers the directories in hide that they contain. It runs in the
// new root, where absolute symbolic links such as /var/run refer to the container's own directories.
func attach(mounts []Mount, sources []source, hide []string) error {
	for i, m := range mounts {
		from := sources[i]
		target, err := attachOne(m, from.tree)
		if err != nil {
			return fmt.Errorf("mounting %s: %w", m.Dst, err)
		}
		unix.Close(from.tree)
		for _, h := range hide { // a volume can contain a directory that must be hidden
			if !within(h, from.path) {
				continue
			}
			if err := coverWithEmpty(path.Join(target, strings.TrimPrefix(h, from.path))); err != nil {
				return err
			}
		}
	}
	return nil
}

// coverWithEmpty mounts an empty directory over dir if dir exists.
func coverWithEmpty(dir string) error {
	if _, err := os.Stat(dir); err != nil {
		return nil // nothing to cover
	}
	if err := unix.Mount("hidden", dir, "tmpfs", unix.MS_RDONLY, "size=4k,mode=755"); err != nil {
		return fmt.Errorf("hiding %s: %w", dir, err)
	}
	return nil
}

// attachOne mounts one source, the detached mount fd, and returns its destination without symbolic links. It creates a
// missing destination.
func attachOne(m Mount, fd int) (target string, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	if target, err = resolve(m.Dst); err != nil {
		return "", err
	}
	if err := ensureExists(target, st.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
		return "", fmt.Errorf("making the mount point: %w", err)
	}
	a := unix.MountAttr{Propagation: m.Propagation}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &a); err != nil {
		return "", fmt.Errorf("setting its propagation: %w", err)
	}
	if m.ReadOnly {
		flags := uint(unix.AT_EMPTY_PATH)
		if m.RecursiveReadOnly {
			flags |= unix.AT_RECURSIVE
		}
		a := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(fd, "", flags, &a); err != nil {
			return "", fmt.Errorf("making it read-only: %w", err)
		}
	}
	return target, moveMount(fd, target)
}

// resolve follows the symbolic links in p as far as p exists. Unlike realPath it accepts a path that does not exist
// yet.
func resolve(p string) (string, error) {
	done, rest := "/", strings.Split(path.Clean(p), "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		next := path.Join(done, name)
		st, err := os.Lstat(next)
		if err != nil || st.Mode()&fs.ModeSymlink == 0 {
			done = next
			continue
		}
		if links++; links > 40 {
			return "", unix.ELOOP
		}
		link, err := os.Readlink(next)
		if err != nil {
			return "", err
		}
		if path.IsAbs(link) {
			done = "/"
		}
		rest = append(strings.Split(path.Clean(link), "/"), rest...)
	}
	return done, nil
}

// ensureExists creates the file or directory p if it is missing. If the parent is read-only or its owner is not mapped
// in the user namespace, a copy in memory covers the nearest existing directory first.
func ensureExists(p string, dir bool) error {
	if _, err := os.Lstat(p); err == nil {
		return nil
	}
	err := create(p, dir)
	if err == nil {
		return nil
	}
	parent := path.Dir(p)
	for {
		if _, err := os.Lstat(parent); err == nil {
			break
		}
		parent = path.Dir(parent)
	}
	if e := coverWithCopy(parent); e != nil {
		return errors.Join(err, e)
	}
	return create(p, dir)
}

// create creates an empty file or directory and its parents.
func create(p string, dir bool) error {
	if dir {
		return os.MkdirAll(p, 0o755)
	}
	if err := os.MkdirAll(path.Dir(p), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(p, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// coverWithCopy mounts over dir a directory in memory that has the same entries and accepts new ones.
func coverWithCopy(dir string) error {
	st, err := os.Stat(dir)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	links, trees := map[string]string{}, map[string]int{}
	for _, e := range entries {
		p := path.Join(dir, e.Name())
		if e.Type()&fs.ModeSymlink != 0 {
			links[p], err = os.Readlink(p)
		} else {
			trees[p], err = cloneTree(p, true)
		}
		if err != nil {
			return fmt.Errorf("copying %s: %w", p, err)
		}
	}
	if err := unix.Mount("mirror", dir, "tmpfs", unix.MS_NODEV, fmt.Sprintf("mode=%o", st.Mode().Perm())); err != nil {
		return err
	}
	for p, link := range links {
		if err := os.Symlink(link, p); err != nil {
			return err
		}
	}
	for p, fd := range trees {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		if err := create(p, st.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
			return err
		}
		if err := moveMount(fd, p); err != nil {
			return err
		}
		unix.Close(fd)
	}
	return nil
}
