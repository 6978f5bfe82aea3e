// Package logind implements the part of systemd's logind that tells a kubelet that its machine shuts down: the kubelet
// takes an inhibitor lock, receives the signal PrepareForShutdown, terminates its pods, and releases the lock. The
// server speaks the D-Bus protocol on its own socket and does not need systemd. It implements no other interface. Start
// reading at Server.Serve.
package logind

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"
)

// maxDelay is the longest delay of a shutdown that the server offers to a kubelet. It exceeds every grace period,
// because a kubelet that needs a longer delay tries to change the configuration of systemd. The server does not enforce
// it.
const maxDelay = 365 * 24 * time.Hour

// D-Bus names that a kubelet uses.
const (
	object   = dbus.ObjectPath("/org/freedesktop/login1")
	manager  = "org.freedesktop.login1.Manager"
	shutdown = "PrepareForShutdown"
	bus      = "org.freedesktop.DBus"
)

// Address returns the value of DBUS_SYSTEM_BUS_ADDRESS with which a kubelet finds the server at a socket.
func Address(socket string) string { return "unix:path=" + dbus.EscapeBusAddressValue(socket) }

// Server announces a shutdown to the connected kubelets.
type Server struct {
	mu        sync.Mutex
	announced bool
	listeners map[*net.UnixConn]bool // connections that asked for signals
	locks     int                    // inhibitor locks that are held
}

// NewServer returns a server that has not announced a shutdown.
func NewServer() *Server { return &Server{listeners: map[*net.UnixConn]bool{}} }

// Announce sends the shutdown signal to every connected kubelet, and to each kubelet that connects later.
func (s *Server) Announce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.announced = true
	for conn := range s.listeners {
		_ = announce(conn) // a kubelet that has disconnected gets the signal when it reconnects
	}
}

// Delayed reports whether a kubelet holds an inhibitor lock.
func (s *Server) Delayed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.locks > 0
}

// Serve answers at a socket until ctx ends. When it returns, all its goroutines have ended.
func (s *Server) Serve(ctx context.Context, socket string) error {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing an old socket: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return fmt.Errorf("listening for the kubelet: %w", err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	for {
		conn, err := listener.AcceptUnix()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accepting the kubelet's connection: %w", err)
		}
		wg.Go(func() { s.serve(ctx, &wg, conn) })
	}
}

// serve answers one client until the client disconnects or ctx ends.
func (s *Server) serve(ctx context.Context, wg *sync.WaitGroup, conn *net.UnixConn) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	defer s.removeListener(conn)
	in := bufio.NewReader(conn)
	if handshake(in, conn) != nil {
		return
	}
	for {
		call, err := dbus.DecodeMessage(in)
		if err != nil || s.answer(ctx, wg, conn, call) != nil {
			return
		}
	}
}

// removeListener removes a client from the clients that receive the signal.
func (s *Server) removeListener(conn *net.UnixConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, conn)
}

// handshake authenticates a client. It accepts all clients, because only the owner can open the socket's directory.
func handshake(in *bufio.Reader, out io.Writer) error {
	if _, err := in.ReadByte(); err != nil { // the null byte that begins a connection
		return err
	}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		answer := "ERROR"
		switch command := strings.TrimSpace(line); {
		case command == "AUTH":
			answer = "REJECTED EXTERNAL"
		case strings.HasPrefix(command, "AUTH EXTERNAL"):
			answer = "OK 00000000000000000000000000000000"
		case command == "NEGOTIATE_UNIX_FD":
			answer = "AGREE_UNIX_FD"
		case command == "BEGIN":
			return nil
		}
		if _, err := io.WriteString(out, answer+"\r\n"); err != nil {
			return err
		}
	}
}

// answer replies to a method call, and ignores other messages. It replies with an error to a method that it does not
// know.
func (s *Server) answer(ctx context.Context, wg *sync.WaitGroup, conn *net.UnixConn, call *dbus.Message) error {
	if call.Type != dbus.TypeMethodCall {
		return nil
	}
	member, _ := call.Headers[dbus.FieldMember].Value().(string)
	switch member {
	case "Hello":
		return reply(conn, call, ":1.1")
	case "Get":
		return reply(conn, call, dbus.MakeVariant(uint64(maxDelay/time.Microsecond)))
	case "Inhibit":
		return s.inhibit(ctx, wg, conn, call)
	case "AddMatch":
		return s.listen(conn, call)
	}
	return send(conn, &dbus.Message{Type: dbus.TypeError, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldReplySerial: dbus.MakeVariant(call.Serial()),
		dbus.FieldErrorName:   dbus.MakeVariant(bus + ".Error.UnknownMethod"),
	}})
}

// inhibit hands out a lock: the write end of a pipe. The lock is released when its holder closes the pipe or dies.
func (s *Server) inhibit(ctx context.Context, wg *sync.WaitGroup, conn *net.UnixConn, call *dbus.Message) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	err = reply(conn, call, dbus.UnixFD(w.Fd()))
	w.Close()
	if err != nil {
		r.Close()
		return err
	}
	s.addLocks(1)
	wg.Go(func() {
		stop := context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Unix(1, 0)) })
		_, _ = r.Read(make([]byte, 1)) // nothing is written, so Read returns when the pipe is closed
		stop()
		r.Close()
		s.addLocks(-1)
	})
	return nil
}

// addLocks changes the number of held locks.
func (s *Server) addLocks(change int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locks += change
}

// listen adds a client to the clients that receive the signal. If the shutdown has already been announced, listen sends
// the signal immediately.
func (s *Server) listen(conn *net.UnixConn, call *dbus.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners[conn] = true
	if err := reply(conn, call); err != nil || !s.announced {
		return err
	}
	return announce(conn)
}

// announce sends the signal of the shutdown to one client.
func announce(conn *net.UnixConn) error {
	return send(conn, &dbus.Message{Type: dbus.TypeSignal, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldPath:      dbus.MakeVariant(object),
		dbus.FieldInterface: dbus.MakeVariant(manager),
		dbus.FieldMember:    dbus.MakeVariant(shutdown),
		dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(true)),
	}, Body: []any{true}})
}

// reply sends the answer to a call.
func reply(conn *net.UnixConn, call *dbus.Message, body ...any) error {
	message := &dbus.Message{Type: dbus.TypeMethodReply, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldReplySerial: dbus.MakeVariant(call.Serial()),
	}}
	if len(body) > 0 {
		message.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
	}
	return send(conn, message)
}

// sendTimeout limits how long a slow client can delay the others.
const sendTimeout = time.Second

// send writes a message and its file descriptors.
func send(conn *net.UnixConn, message *dbus.Message) error {
	count, err := message.CountFds()
	if err != nil {
		return err
	}
	if count > 0 {
		message.Headers[dbus.FieldUnixFDs] = dbus.MakeVariant(uint32(count))
	}
	var data bytes.Buffer
	fds, err := message.EncodeToWithFDs(&data, binary.LittleEndian)
	if err != nil {
		return err
	}
	var rights []byte
	if len(fds) > 0 {
		rights = syscall.UnixRights(fds...)
	}
	if err := conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	_, _, err = conn.WriteMsgUnix(data.Bytes(), rights, nil)
	return err
}
