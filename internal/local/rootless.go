package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"tensorstack.dev/batch/internal/local/dns"
	"tensorstack.dev/batch/internal/local/serviceproxy"
)

// The cluster of an unprivileged user runs in a user namespace, in which the user is root, and in a network namespace,
// because the user may not change the machine's network. An outer process outside both namespaces handles everything
// that needs the machine's network: it listens on the API server's port and forwards DNS questions to the machine's
// name servers.

// File descriptors that the inner process inherits from the outer process: the API server's listener, and the
// directory's lock. Both processes hold the lock, so it is released when both have exited.
const (
	listenerFD = 3
	lockFD     = 4
)

// dnsSocket returns the path of the socket at which the outer process answers DNS questions.
func (d Dir) dnsSocket() string { return d.join("dns.sock") }

// runInUserNamespace runs this program again with the same arguments in new user, mount and network namespaces, and
// returns its exit code. The new process dies with this one.
func runInUserNamespace(d Dir, c *Config, lock *os.File) (code int, err error) {
	listener, err := net.Listen("tcp", c.loopback(APIServer))
	if err != nil {
		return 0, fmt.Errorf("listening for the API server: %w", err)
	}
	defer listener.Close()
	listenerFile, err := listener.(*net.TCPListener).File()
	if err != nil {
		return 0, err
	}
	defer listenerFile.Close()
	if err := os.Remove(d.dnsSocket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	dnsListener, err := net.Listen("unix", d.dnsSocket())
	if err != nil {
		return 0, fmt.Errorf("listening for DNS: %w", err)
	}
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer dnsListener.Close()
	helpers.Go(func() { _ = dns.ResolvConf("/etc/resolv.conf").Serve(dnsListener) }) // until it is closed

	binary, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("finding this program: %w", err)
	}
	runtime.LockOSThread() // the child gets SIGKILL when the thread that started it ends
	defer runtime.UnlockOSThread()
	cmd := exec.Command(binary, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", lockVariable, lockFD))
	cmd.ExtraFiles = []*os.File{listenerFD - 3: listenerFile, lockFD - 3: lock}
	cmd.SysProcAttr = userNamespace()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer func() {
		signal.Stop(signals)
		close(signals)
	}()
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("making a user namespace: %w", err)
	}
	helpers.Go(func() {
		for s := range signals {
			_ = cmd.Process.Signal(s) // fails only if the process has just exited
		}
	})
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	return cmd.ProcessState.ExitCode(), nil
}

// joinNetworks sets up the new network namespace: it starts the loopback device and forwards the API server's port of
// the machine to the API server. It accepts connections until ctx ends, when the shutdown begins. Open connections last
// until the caller calls stop, so that users can watch the shutdown. stop closes them and returns when they have ended.
func joinNetworks(ctx context.Context, c *Config) (stop func(), err error) {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, fmt.Errorf("looking for the loopback device: %w", err)
	}
	if err := netlink.LinkSetUp(loopback); err != nil {
		return nil, fmt.Errorf("setting up the loopback device: %w", err)
	}
	unix.CloseOnExec(listenerFD)
	listenerFile := os.NewFile(listenerFD, "front")
	listener, err := net.FileListener(listenerFile)
	if err != nil {
		return nil, fmt.Errorf("taking over the API server's port: %w", err)
	}
	listenerFile.Close()
	context.AfterFunc(ctx, func() { listener.Close() })
	connected, disconnect := context.WithCancel(context.WithoutCancel(ctx))
	var forwarding sync.WaitGroup
	forwarding.Go(func() {
		serviceproxy.Forward(connected, listener, func() []string { return []string{c.loopback(APIServer)} })
	})
	return func() {
		listener.Close()
		disconnect()
		forwarding.Wait()
	}, nil
}
