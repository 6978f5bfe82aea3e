package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"

	"golang.org/x/sys/unix"
)

// DefaultName is the name of the cluster that is meant when none is given.
const DefaultName = "default"

// DirVariable is the environment variable by which components learn the cluster's directory.
const DirVariable = "T9K_LOCAL_DIR"

// machineLog is the name of the machine process's own log.
const machineLog = "machine"

// maxDirLength keeps the sockets below a cluster's directory (the longest is the kubelet's pod-resources socket with
// the name under which it is first made) within the 107 bytes that a Unix socket address holds.
const maxDirLength = 64

var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$`)

// Dir is the directory of one cluster. Everything the cluster writes is below it.
type Dir string

// StateRoot is the directory that holds the clusters of this user: t9k/local below $XDG_STATE_HOME, which is by default
// ~/.local/state.
func StateRoot() (string, error) {
	base := os.Getenv("XDG_STATE_HOME")
	if base == "" || !filepath.IsAbs(base) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("finding the state directory: %w; set XDG_STATE_HOME", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(base, "t9k", "local"), nil
}

// NamedDir is the directory of the cluster called name. It fails on a name that is not a lower-case DNS label of at
// most 32 characters, or a path too long for Unix sockets.
func NamedDir(name string) (Dir, error) {
	if !validName.MatchString(name) {
		return "", fmt.Errorf("%q cannot be a cluster's name: use at most 32 lower-case letters, digits and '-', with a letter or digit at both ends", name)
	}
	root, err := StateRoot()
	if err != nil {
		return "", err
	}
	return CheckDir(filepath.Join(root, name))
}

// CheckDir makes a Dir of a path, which must be absolute and not too long for the sockets below it.
func CheckDir(path string) (Dir, error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("the directory %q is not an absolute path", path)
	}
	if len(path) > maxDirLength {
		return "", fmt.Errorf("the directory %s is %d characters long, but sockets in it need it to be at most %d: choose a shorter --name or XDG_STATE_HOME", path, len(path), maxDirLength)
	}
	return Dir(path), nil
}

// Names lists the clusters of this user that have a directory, sorted.
func Names() ([]string, error) {
	root, err := StateRoot()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	var names []string
	for _, e := range entries {
		if _, err := os.Stat(Dir(filepath.Join(root, e.Name())).configFile()); err == nil {
			names = append(names, e.Name())
		}
	}
	sort.Strings(names)
	return names, nil
}

// Name is the cluster's name.
func (d Dir) Name() string { return filepath.Base(string(d)) }

// Kubeconfig is the file by which the user reaches the cluster as its administrator.
func (d Dir) Kubeconfig() string { return d.join("kubeconfig") }

// LogFile is where the output of a component, or of the "machine" process itself, is written.
func (d Dir) LogFile(component string) string { return d.join("logs", component+".log") }

// AuditLog is where the API server writes one JSON event per line when the cluster has an audit policy.
func (d Dir) AuditLog() string { return d.join("logs", "audit.log") }

func (d Dir) configFile() string { return d.join("cluster.json") }
func (d Dir) lockFile() string   { return d.join("lock") }
func (d Dir) socket() string     { return d.join("machine.sock") }
func (d Dir) etcdSocket() string { return d.join("etcd.sock") }

func (d Dir) join(parts ...string) string {
	return filepath.Join(append([]string{string(d)}, parts...)...)
}

// create makes the directory and those in it, readable by the owner only: it holds keys.
func (d Dir) create() error {
	for _, p := range []string{"", "logs", "pki"} {
		if err := os.MkdirAll(d.join(p), 0o700); err != nil {
			return fmt.Errorf("making the cluster's directory: %w", err)
		}
	}
	return nil
}

// errLocked says that the machine process of the directory is alive.
var errLocked = errors.New("the cluster is already running")

// lock takes the directory's lock until the file is closed or the process ends in whatever way. Only one machine
// process can hold it.
func (d Dir) lock() (*os.File, error) {
	f, err := os.OpenFile(d.lockFile(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the cluster's lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, fmt.Errorf("locking %s: %w", d.lockFile(), err)
	}
	return f, nil
}

// Running tells whether a machine process of this directory is alive.
func (d Dir) Running() bool {
	if _, err := os.Stat(d.lockFile()); err != nil {
		return false
	}
	f, err := d.lock()
	if err == nil {
		f.Close()
	}
	return errors.Is(err, errLocked)
}

// writeFile replaces the file at once, so that no crash leaves half of it.
func writeFile(path string, data []byte, mode os.FileMode) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, data, mode); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
