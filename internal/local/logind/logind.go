// Package logind is the part of systemd's logind by which a kubelet learns that its machine shuts down: the kubelet takes an
// inhibitor lock, is told that a shutdown is near, ends its pods, and releases the lock. It speaks the D-Bus protocol on a
// socket of its own, whether or not the machine has systemd, and knows no other bus and no other interface. Start at Serve.
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

// maxDelay is for how long logind lets a kubelet delay the shutdown.
const maxDelay = 365 * 24 * time.Hour

// The names that a kubelet uses.
const (
	object    = dbus.ObjectPath("/org/freedesktop/login1")
	manager   = "org.freedesktop.login1.Manager"
	shutdown  = "PrepareForShutdown"
	busMember = "org.freedesktop.DBus"
)

// Address is the value of DBUS_SYSTEM_BUS_ADDRESS with which a kubelet finds the server at a socket.
func Address(socket string) string { return "unix:path=" + dbus.EscapeBusAddressValue(socket) }

// Server tells kubelets of the shutdown.
type Server struct {
	mu        sync.Mutex
	announced bool
	listeners map[*net.UnixConn]bool // connections that asked for signals
	locks     int                    // taken and not released
}

// NewServer makes a server of a machine that does not shut down.
func NewServer() *Server { return &Server{listeners: map[*net.UnixConn]bool{}} }

// Announce tells every kubelet that is connected, and each that connects later, that the machine shuts down.
func (s *Server) Announce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.announced = true
	for conn := range s.listeners {
		_ = announce(conn) // a kubelet that is gone is told when it is back
	}
}

// Delayed tells whether a kubelet holds an inhibitor lock.
func (s *Server) Delayed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.locks > 0
}

// Serve answers at a socket until ctx ends. It returns when every goroutine of it has ended.
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

// serve answers one client until it goes away or ctx ends.
func (s *Server) serve(ctx context.Context, wg *sync.WaitGroup, conn *net.UnixConn) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	defer s.forget(conn)
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

func (s *Server) forget(conn *net.UnixConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, conn)
}

// handshake lets everybody in: the socket's directory is closed to others.
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

// answer does what a call asks for.
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
		dbus.FieldErrorName:   dbus.MakeVariant(busMember + ".Error.UnknownMethod"),
	}})
}

// inhibit gives out a lock: the end of a pipe, which is released when it is closed, by whatever end of its holder.
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
	s.count(1)
	wg.Go(func() {
		stop := context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Unix(1, 0)) })
		_, _ = r.Read(make([]byte, 1)) // nobody writes: it returns at the end
		stop()
		r.Close()
		s.count(-1)
	})
	return nil
}

func (s *Server) count(change int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locks += change
}

// listen takes a client into those that are told of the shutdown. One that comes late is told at once.
func (s *Server) listen(conn *net.UnixConn, call *dbus.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners[conn] = true
	if err := reply(conn, call); err != nil || !s.announced {
		return err
	}
	return announce(conn)
}

func announce(conn *net.UnixConn) error {
	return send(conn, &dbus.Message{Type: dbus.TypeSignal, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldPath:      dbus.MakeVariant(object),
		dbus.FieldInterface: dbus.MakeVariant(manager),
		dbus.FieldMember:    dbus.MakeVariant(shutdown),
		dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(true)),
	}, Body: []any{true}})
}

func reply(conn *net.UnixConn, call *dbus.Message, body ...any) error {
	message := &dbus.Message{Type: dbus.TypeMethodReply, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldReplySerial: dbus.MakeVariant(call.Serial()),
	}}
	if len(body) > 0 {
		message.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
	}
	return send(conn, message)
}

// sendTimeout bounds the time for which a client may keep everybody else waiting.
const sendTimeout = time.Second

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
