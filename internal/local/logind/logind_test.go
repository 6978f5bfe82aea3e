package logind_test

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"tensorstack.dev/batch/internal/local/logind"
	"tensorstack.dev/batch/test/kit/await"
)

const (
	service = "org.freedesktop.login1"
	manager = "org.freedesktop.login1.Manager"
	path    = dbus.ObjectPath("/org/freedesktop/login1")
)

// start starts a server until the end of the test. It returns the server and the path of its socket.
func start(t *testing.T) (*logind.Server, string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "a, b.sock")
	server := logind.NewServer()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, socket) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return server, socket
}

// connect connects as a kubelet does. It returns the lock and the channel that receives the shutdown signal.
func connect(t *testing.T, socket string) (lock int, signals chan *dbus.Signal) {
	t.Helper()
	var conn *dbus.Conn
	await.That(t, "the server", func() (ok bool) {
		var err error
		conn, err = dbus.Connect(logind.Address(socket))
		return err == nil
	})
	t.Cleanup(func() { conn.Close() })
	delay, err := conn.Object(service, path).GetProperty(manager + ".InhibitDelayMaxUSec")
	if err != nil {
		t.Fatal(err)
	}
	if d := time.Duration(delay.Value().(uint64)) * time.Microsecond; d < 24*time.Hour {
		t.Errorf("a shutdown can be delayed by %s", d)
	}
	call := conn.Object(service, path).Call(manager+".Inhibit", 0, "shutdown", "kubelet", "a reason", "delay")
	var fd dbus.UnixFD
	if err := call.Store(&fd); err != nil {
		t.Fatal(err)
	}
	signals = make(chan *dbus.Signal, 1)
	conn.Signal(signals)
	if err := conn.AddMatchSignal(dbus.WithMatchInterface(manager), dbus.WithMatchMember("PrepareForShutdown")); err != nil {
		t.Fatal(err)
	}
	return int(fd), signals
}

func isAnnounced(t *testing.T, signals chan *dbus.Signal) {
	t.Helper()
	select {
	case s := <-signals:
		if s.Name != manager+".PrepareForShutdown" || len(s.Body) != 1 || s.Body[0] != true {
			t.Errorf("the signal is %+v", s)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the shutdown was not announced")
	}
}

func TestKubeletDelaysTheShutdown(t *testing.T) {
	server, socket := start(t)
	lock, signals := connect(t, socket)
	await.That(t, "the lock", server.Delayed)
	server.Announce()
	isAnnounced(t, signals)
	if !server.Delayed() {
		t.Error("the lock counts as released before it was")
	}
	if err := syscall.Close(lock); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the release of the lock", func() bool { return !server.Delayed() })
}

func TestLateKubeletGetsTheSignal(t *testing.T) {
	server, socket := start(t)
	server.Announce()
	lock, signals := connect(t, socket)
	isAnnounced(t, signals)
	if err := syscall.Close(lock); err != nil {
		t.Fatal(err)
	}
}

func TestOtherCallsAreRefused(t *testing.T) {
	_, socket := start(t)
	connect(t, socket)
	conn, err := dbus.Connect(logind.Address(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if call := conn.Object(service, path).Call(manager+".PowerOff", 0, false); call.Err == nil {
		t.Error("the server accepted a request to power off the machine")
	}
}
