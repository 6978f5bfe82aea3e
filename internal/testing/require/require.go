// Package require states what a test needs of the machine. Where that is missing the test skips with a line that names
// it, or fails if T9K_REQUIRE_ALL is set, so that a machine that is meant to run every test cannot quietly skip one.
package require

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// AllEnv is the environment variable that turns every skip of this package into a failure.
const AllEnv = "T9K_REQUIRE_ALL"

// Missing ends the test, which cannot run without what: as skipped, or as failed if T9K_REQUIRE_ALL is set.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv(AllEnv) != "" {
		t.Fatalf("missing: %s (%s is set, so this is a failure)", what, AllEnv)
	}
	t.Skipf("missing: %s", what)
}

// Root lets a test run only as root.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, "root")
	}
}

// MountNamespaces lets a test run only where this user can make mount, PID, network, UTS and IPC namespaces and mount in
// them: as root, or through a user namespace.
func MountNamespaces(t testing.TB) {
	t.Helper()
	if err := tryNamespaces(); err != nil {
		Missing(t, "mount namespaces ("+err.Error()+")")
	}
}

// tryNamespaces runs this test binary, without any test, in namespaces of its own. Go marks the mounts of the new
// namespace private before it starts the program, which fails where mounting is not allowed.
func tryNamespaces() error {
	attr := &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Unshareflags: syscall.CLONE_NEWNS,
	}
	if os.Geteuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.SysProcAttr = attr
	return cmd.Run()
}
