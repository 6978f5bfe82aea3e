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

// DefaultName is the name of the cluster if the user does not name one.
const DefaultName = "default"

// DirVariable is the environment variable with the cluster's directory, which the kubelet's process reads.
const DirVariable = "T9K_LOCAL_DIR"

// machineLog is the name of the machine process's log.
const machineLog = "machine"

// maxDirLength is the longest path of a cluster's directory, in bytes. A Unix socket address holds 107 bytes, and the
// longest socket path below the directory is the temporary name of the kubelet's pod-resources socket.
const maxDirLength = 64

var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$`)

// Dir is the path of a cluster's directory. All files of the cluster are below it.
type Dir string

// StateRoot returns the directory that holds this user's clusters: t9k/local below $XDG_STATE_HOME, or below
// ~/.local/state if the variable is not an absolute path.
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

// NamedDir returns the directory of the cluster called name. It fails if name is not a lower-case DNS label of at most
// 32 characters, or if the path is too long for Unix sockets.
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

// CheckDir returns path as a Dir. It fails if path is not absolute or is too long for the sockets below it.
func CheckDir(path string) (Dir, error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("the directory %q is not an absolute path", path)
	}
	if len(path) > maxDirLength {
		return "", fmt.Errorf("the directory %s is %d characters long, but sockets in it need it to be at most %d: choose a shorter --name or XDG_STATE_HOME", path, len(path), maxDirLength)
	}
	return Dir(path), nil
}

// Names returns the names of this user's clusters, sorted.
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

// Name returns the cluster's name.
func (d Dir) Name() string { return filepath.Base(string(d)) }

// Kubeconfig returns the path of the administrator's kubeconfig.
func (d Dir) Kubeconfig() string { return d.join("kubeconfig") }

// LogFile returns the path of the log of a component, or of the machine process if component is "machine".
func (d Dir) LogFile(component string) string { return d.join("logs", component+".log") }

// AuditLog returns the path of the API server's audit log: one JSON event per line. It exists if the cluster has an
// audit policy.
func (d Dir) AuditLog() string { return d.join("logs", "audit.log") }

func (d Dir) configFile() string { return d.join("cluster.json") }

// settingsFile returns the path of the configuration file of a component.
func (d Dir) settingsFile(component string) string { return d.join(component + ".yaml") }
func (d Dir) lockFile() string                     { return d.join("lock") }
func (d Dir) socket() string                       { return d.join("machine.sock") }
func (d Dir) etcdSocket() string                   { return d.join("etcd.sock") }

// exitErrorFile returns the path of the file that holds the exit error of the machine process.
func (d Dir) exitErrorFile() string { return d.join("machine.error") }

// RecordExit records the error with which the machine process exits, for the command that started it.
func (d Dir) RecordExit(err error) error {
	return os.WriteFile(d.exitErrorFile(), []byte(err.Error()), 0o600)
}

func (d Dir) join(parts ...string) string {
	return filepath.Join(append([]string{string(d)}, parts...)...)
}

// create creates the directory and its subdirectories. Only the owner can read them, because they contain keys.
func (d Dir) create() error {
	for _, p := range []string{"", "logs", "pki"} {
		if err := os.MkdirAll(d.join(p), 0o700); err != nil {
			return fmt.Errorf("making the cluster's directory: %w", err)
		}
	}
	return nil
}

// errLocked means that the directory's lock is held: by the machine process or, for a short time, by another command.
var errLocked = errors.New("the cluster is already running")

// lock takes the directory's lock, and returns errLocked if the lock is already held. The lock is held until the
// returned file is closed or the process ends.
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

// Running reports whether the directory's lock is held, as it is while the machine process is alive. To find out, it
// takes the lock for a moment.
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

// writeFile replaces a file atomically, so that a crash of this process never leaves a partial file.
func writeFile(path string, data []byte, mode os.FileMode) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, data, mode); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
