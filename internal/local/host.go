package local

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// CheckHost tells whether this process may do what a node takes; if not, the error says what is missing and what to do
// about it.
func CheckHost() error {
	missing := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its namespaces
		missing <- tryNamespaces()
	}()
	if err := <-missing; err != nil {
		return fmt.Errorf("this machine does not let user %d run pods (%w): run it as root, or use another cluster by --kubeconfig", os.Geteuid(), err)
	}
	return nil
}

// tryNamespaces does, in namespaces of the calling thread, what the node does in its own.
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
