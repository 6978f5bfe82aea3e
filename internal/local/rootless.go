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
// that needs the machine's network: it listens on the ports that users connect to and forwards DNS questions to the
// machine's name servers.

// The inner process inherits these file descriptors from the outer process: the directory's lock, and the listeners of
// the forwarded ports in the order of Config.forwarded. Both processes hold the lock, so it is released when both have
// exited.
const (
	lockFD          = 3
	firstListenerFD = 4
)

// forwarded returns the owners of the ports that users of the machine connect to.
func (c *Config) forwarded() []string {
	if c.has(Console) {
		return []string{APIServer, Console, archiveServer}
	}
	return []string{APIServer}
}

// dnsSocket returns the path of the socket at which the outer process answers DNS questions.
func (d Dir) dnsSocket() string { return d.join("dns.sock") }

// runInUserNamespace runs this program again with the same arguments in new user, mount and network namespaces, and
// returns its exit code. Until the new process exits, this one listens on the forwarded ports, answers DNS questions at
// dnsSocket, and passes on SIGTERM and SIGINT. The new process dies with this one.
func runInUserNamespace(d Dir, c *Config, lock *os.File) (code int, err error) {
	inherited := []*os.File{lockFD - 3: lock}
	for _, owner := range c.forwarded() {
		listener, err := net.Listen("tcp", c.loopback(owner))
		if err != nil {
			return 0, fmt.Errorf("listening on the port of %s: %w", owner, err)
		}
		defer listener.Close()
		file, err := listener.(*net.TCPListener).File()
		if err != nil {
			return 0, fmt.Errorf("handing over the port of %s: %w", owner, err)
		}
		defer file.Close()
		inherited = append(inherited, file)
	}
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
	helpers.Go(func() { _ = dns.ResolvConf("/etc/resolv.conf").Serve(dnsListener) }) // until dnsListener is closed

	binary, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("finding this program: %w", err)
	}
	runtime.LockOSThread() // the child gets SIGKILL when the thread that started it ends
	defer runtime.UnlockOSThread()
	cmd := exec.Command(binary, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", lockVariable, lockFD))
	cmd.ExtraFiles = inherited
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

// joinNetworks sets up the new network namespace: it starts the loopback device and forwards connections from the
// machine's ports. It accepts connections until ctx ends, when the shutdown begins. Open connections last until the
// caller calls stop, so that users can watch the shutdown. stop closes them and returns when they have ended.
func joinNetworks(ctx context.Context, c *Config) (stop func(), err error) {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, fmt.Errorf("looking for the loopback device: %w", err)
	}
	if err := netlink.LinkSetUp(loopback); err != nil {
		return nil, fmt.Errorf("setting up the loopback device: %w", err)
	}
	connected, disconnect := context.WithCancel(context.WithoutCancel(ctx))
	var listeners []net.Listener
	var forwarding sync.WaitGroup
	stop = func() {
		for _, l := range listeners {
			l.Close()
		}
		disconnect()
		forwarding.Wait()
	}
	for i, owner := range c.forwarded() {
		unix.CloseOnExec(firstListenerFD + i)
		file := os.NewFile(uintptr(firstListenerFD+i), owner)
		listener, err := net.FileListener(file)
		file.Close()
		if err != nil {
			stop()
			return nil, fmt.Errorf("taking over the port of %s: %w", owner, err)
		}
		listeners = append(listeners, listener)
		context.AfterFunc(ctx, func() { listener.Close() })
		forwarding.Go(func() {
			serviceproxy.Forward(connected, listener, func() []string { return []string{c.loopback(owner)} })
		})
	}
	return stop, nil
}
