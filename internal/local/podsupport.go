package local

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// CheckPodSupport returns nil if this user can run pods on this machine. Otherwise the error says what is missing and
// what to do.
func CheckPodSupport() error {
	_, err := needsUserNamespace()
	return err
}

// needsUserNamespace reports whether this user needs a user namespace to run pods. Root usually does not. It fails if
// the user cannot run pods at all.
func needsUserNamespace() (bool, error) {
	denied := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends together with its namespaces
		denied <- tryNamespaces()
	}()
	asRoot := <-denied
	if asRoot == nil {
		return false, nil
	}
	if err := tryUserNamespace(); err != nil {
		return false, fmt.Errorf("user %d cannot run pods on this machine, neither directly (%w) nor in a user namespace (%w); "+
			"run it as root, or use another cluster by --kubeconfig", os.Geteuid(), asRoot, err)
	}
	return true, nil
}

// tryNamespaces tries, in new namespaces of the calling thread, the mounts and network devices that a node needs.
func tryNamespaces() error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC); err != nil {
		return fmt.Errorf("making namespaces: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mounting: %w", err)
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = "t9k-check"
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("configuring the network: %w", err)
	}
	defer handle.Close()
	if err := handle.LinkAdd(&netlink.Bridge{LinkAttrs: attributes}); err != nil {
		if errors.Is(err, unix.EOPNOTSUPP) {
			return errors.New("the kernel has no network bridges")
		}
		return fmt.Errorf("making a network bridge: %w", err)
	}
	return nil
}

// tryUserNamespace tries to mount an overlay in a new user namespace, because some systems allow user namespaces but
// deny every mount in them.
func tryUserNamespace() error {
	cmd := exec.Command("mount", "-t", "overlay", "-o", "lowerdir=/usr:/etc", "t9k-check", "/usr")
	cmd.SysProcAttr = userNamespace()
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.ENOSPC) {
		return errors.New("their number is limited by /proc/sys/user/max_user_namespaces")
	}
	if err != nil && len(out) > 0 {
		return fmt.Errorf("mounting an overlay: %s", strings.TrimSpace(string(out)))
	}
	return err
}

// userNamespace returns the attributes of a process that is root in its own user, mount and network namespaces. The
// kernel kills the process when the thread that started it ends.
func userNamespace() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   unix.SIGKILL,
	}
}
