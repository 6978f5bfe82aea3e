// Package postgres starts the PostgreSQL server of this machine for a test, in a temporary directory and without a
// port.
package postgres

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"tensorstack.dev/batch/internal/testing/require"
	"tensorstack.dev/batch/test/kit/await"
)

// Start starts a server that stops when the test ends, and returns the URL of an empty database. Without PostgreSQL, or
// if root cannot give its directory to a user postgres, Start ends the test as require.Missing does.
func Start(t testing.TB) string {
	t.Helper()
	programs := programs()
	if programs == "" {
		require.Missing(t, "PostgreSQL (Debian's package postgresql)")
	}
	dir, err := os.MkdirTemp("", "t9k-pg-") //nolint:usetesting // a socket needs a short path that its user can reach
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	owner, err := owner(dir)
	if err != nil {
		require.Missing(t, "a user for PostgreSQL, which does not run as root: "+err.Error())
	}
	data := filepath.Join(dir, "data")
	run := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(programs, name), args...)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: owner, Pdeathsig: syscall.SIGKILL}
		return cmd
	}
	if out, err := run("initdb", "-D", data, "-U", "test", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v: %s", err, out)
	}
	server := run("postgres", "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=16MB")
	var output bytes.Buffer
	server.Stdout, server.Stderr = &output, &output
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = server.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGINT) // requests a fast shutdown
		<-ended
	})
	if err := ready(dir, run, ended); err != nil {
		t.Fatalf("PostgreSQL does not start: %v: %s", err, output.String())
	}
	q := url.Values{"host": {dir}, "user": {"test"}}
	return "postgres:///postgres?" + q.Encode()
}

// programs returns the directory of PostgreSQL's programs: that of the last of Debian's packages by name, which is the
// newest from version 10 on, or else the one in the PATH. It returns an empty string if there are none.
func programs() string {
	all, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres") // the pattern is valid
	slices.Sort(all)
	if len(all) > 0 {
		return filepath.Dir(all[len(all)-1])
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		return filepath.Dir(path)
	}
	return ""
}

// owner gives a directory to the user postgres, and returns the credentials of this user. It does nothing and returns
// nil if the test does not run as root.
func owner(dir string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	who, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, err1 := strconv.ParseUint(who.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(who.Gid, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if err := os.Chown(dir, int(uid), int(gid)); err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// ready waits until the server accepts connections. It fails if the server exits first or does not accept connections
// within await.Patience.
func ready(dir string, run func(string, ...string) *exec.Cmd, ended <-chan struct{}) error {
	over := false
	err := await.Try("the server is ready", func() error {
		select {
		case <-ended:
			over = true
			return nil
		default:
		}
		out, err := run("pg_isready", "-h", dir, "-d", "postgres", "-U", "test").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	if over {
		return errors.New("it has ended")
	}
	return err
}
