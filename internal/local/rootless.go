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

// An ordinary user's cluster is in a user namespace, in which they are root, and in a network namespace, since the
// machine's is not theirs to change. A process outside of both does what takes the machine's network: it listens at
// the port of the API server, and asks the machine's name servers.

// The file descriptors that the outer process passes to the inner one: the listener, and the directory's lock, which
// thereby is held until both have ended.
const (
	frontFile = 3
	lockFile  = 4
)

func (d Dir) dnsSocket() string { return d.join("dns.sock") }

// runInUserNamespace runs this program anew, with the same arguments, in namespaces of its own, and returns its exit
// code when it ends. It ends with this process.
func runInUserNamespace(d Dir, c *Config, lock *os.File) (code int, err error) {
	front, err := net.Listen("tcp", c.loopback(APIServer))
	if err != nil {
		return 0, fmt.Errorf("listening for the API server: %w", err)
	}
	defer front.Close()
	file, err := front.(*net.TCPListener).File()
	if err != nil {
		return 0, err
	}
	defer file.Close()
	if err := os.Remove(d.dnsSocket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	questions, err := net.Listen("unix", d.dnsSocket())
	if err != nil {
		return 0, fmt.Errorf("listening for DNS: %w", err)
	}
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer questions.Close()
	helpers.Go(func() { _ = dns.ResolvConf("/etc/resolv.conf").Serve(questions) }) // until it is closed

	binary, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("finding this program: %w", err)
	}
	runtime.LockOSThread() // the child dies with the thread that made it
	defer runtime.UnlockOSThread()
	cmd := exec.Command(binary, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", lockVariable, lockFile))
	cmd.ExtraFiles = []*os.File{frontFile - 3: file, lockFile - 3: lock}
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
			_ = cmd.Process.Signal(s) // it has just ended
		}
	})
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	return cmd.ProcessState.ExitCode(), nil
}

// joinNetworks sets up the new network namespace: its own loopback device, and the API server's port of the machine.
func joinNetworks(ctx context.Context, c *Config) error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("looking for the loopback device: %w", err)
	}
	if err := netlink.LinkSetUp(loopback); err != nil {
		return fmt.Errorf("setting up the loopback device: %w", err)
	}
	unix.CloseOnExec(frontFile)
	file := os.NewFile(frontFile, "front")
	front, err := net.FileListener(file)
	if err != nil {
		return fmt.Errorf("taking over the API server's port: %w", err)
	}
	file.Close()
	// Nobody waits for this: it ends with the listener, and the connections end with the machine process.
	context.AfterFunc(ctx, func() { front.Close() })
	go serviceproxy.Forward(ctx, front, func() []string { return []string{c.loopback(APIServer)} })
	return nil
}
