// Package require checks a test's requirements of the machine. If the machine does not meet a requirement, the test
// is skipped with a message that names it. If T9K_REQUIRE_ALL is set, the test fails instead, so that CI cannot
// silently skip tests.
package require

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// AllEnv is the environment variable that turns every skip of this package into a failure.
const AllEnv = "T9K_REQUIRE_ALL"

// Missing ends the test because the machine lacks what: it skips the test, or fails it if T9K_REQUIRE_ALL is set.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv(AllEnv) != "" {
		t.Fatalf("missing: %s (%s is set, so this is a failure)", what, AllEnv)
	}
	t.Skipf("missing: %s", what)
}

// Root ends the test as Missing does, unless the test runs as root.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, "root")
	}
}

// MountNamespaces ends the test as Missing does, unless this user can create mount, PID, network, UTS and IPC
// namespaces and mount in them, as root or in a user namespace.
func MountNamespaces(t testing.TB) {
	t.Helper()
	if err := tryNamespaces(); err != nil {
		Missing(t, "mount namespaces ("+err.Error()+")")
	}
}

// tryNamespaces starts this test binary in new namespaces, without running any test. Go makes the mounts of the new
// namespace private before it starts the program, which fails if mounting is not allowed.
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
