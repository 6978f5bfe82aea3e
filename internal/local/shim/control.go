package shim

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Requests on the control socket: a client sends one of these bytes.
const (
	ControlReopen = 'r' // reopen the log; the answer is StatusOK or an error message
	ControlKill   = 'k' // kill the command with SIGKILL, and with it the container; there is no answer
	ControlAttach = 'a' // frames follow in both directions until the container exits
)

// Types of frames. A frame consists of its type (one byte), the length of its payload (four bytes, big endian) and the
// payload.
const (
	FrameStdin      = 0 // input for the command
	FrameStdout     = 1 // standard output of the command
	FrameStderr     = 2 // standard error of the command
	FrameStdinClose = 3 // end of the input from the client
	FrameResize     = 4 // new size of the terminal: rows and columns, two bytes each, big endian
)

// maxFrame is the largest payload of a frame, in bytes.
const maxFrame = 1 << 20

// sendTimeout is how long a slow client may delay the command's output before it is disconnected.
const sendTimeout = 10 * time.Second

// WriteFrame writes one frame.
func WriteFrame(w io.Writer, kind byte, payload []byte) error {
	b := make([]byte, 5, 5+len(payload))
	b[0] = kind
	binary.BigEndian.PutUint32(b[1:], uint32(len(payload)))
	_, err := w.Write(append(b, payload...))
	return err
}

// ReadFrame reads one frame. It fails if the payload is larger than maxFrame.
func ReadFrame(r io.Reader) (kind byte, payload []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, io.ErrShortBuffer
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(r, payload)
	return head[0], payload, err
}

// output distributes the command's output to the log and to the attached clients.
type output struct {
	log     *logFile
	mu      sync.Mutex
	clients map[*os.File]bool
}

// broadcast sends output to every attached client and disconnects a client if the write fails or takes longer than
// sendTimeout.
func (o *output) broadcast(stream byte, b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for c := range o.clients {
		_ = c.SetWriteDeadline(time.Now().Add(sendTimeout))
		if WriteFrame(c, stream, b) != nil {
			c.Close()
			delete(o.clients, c)
		}
	}
}

// add attaches a client.
func (o *output) add(c *os.File) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.clients[c] = true
}

// remove detaches a client.
func (o *output) remove(c *os.File) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.clients, c)
}

// control answers requests on the control socket.
type control struct {
	out       *output
	stdin     *os.File // write end of the command's input, or its terminal; nil without stdin
	terminal  *os.File // nil without one
	stdinOnce bool
	pid       int // of the command
	ended     atomic.Bool
}

// listen creates the control socket in the working directory. It does not use package net; doc.go says why.
func listen() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	l := os.NewFile(uintptr(fd), ControlSock)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: ControlSock}); err != nil {
		return nil, err
	}
	return l, unix.Listen(fd, 16)
}

// accept returns the next connection to the control socket.
func accept(l *os.File) (*os.File, error) {
	raw, err := l.SyscallConn()
	if err != nil {
		return nil, err
	}
	var conn int
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		conn, _, failed = unix.Accept4(int(fd), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		return failed != unix.EAGAIN && failed != unix.EINTR && failed != unix.ECONNABORTED
	})
	if err != nil || failed != nil {
		return nil, errors.Join(err, failed)
	}
	return os.NewFile(uintptr(conn), "client"), nil
}

// serve answers clients until the listener fails. It does not wait for the clients, which may stay attached or silent
// for any time. They all disconnect when the process exits. No state is lost, because all state is in files.
func (c *control) serve(l *os.File) {
	for {
		conn, err := accept(l)
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			c.handle(conn)
		}()
	}
}

// handle answers the request of one client.
func (c *control) handle(conn *os.File) {
	var op [1]byte
	if _, err := io.ReadFull(conn, op[:]); err != nil {
		return
	}
	switch op[0] {
	case ControlReopen:
		answer := StatusOK
		if err := c.out.log.reopen(); err != nil {
			answer = err.Error()
		}
		_, _ = io.WriteString(conn, answer)
	case ControlKill:
		if !c.ended.Load() { // the PID of an exited command may be reused
			_ = unix.Kill(c.pid, unix.SIGKILL)
		}
	case ControlAttach:
		c.attach(conn)
	}
}

// attach forwards the client's input and terminal sizes to the command until the client disconnects. With stdinOnce, it
// closes the command's input when the client ends its input or disconnects. broadcast sends the output.
func (c *control) attach(conn *os.File) {
	c.out.add(conn)
	defer c.out.remove(conn)
	for {
		kind, b, err := ReadFrame(conn)
		switch {
		case err != nil:
			if c.stdinOnce {
				c.closeStdin()
			}
			return
		case kind == FrameStdin && c.stdin != nil:
			_, _ = c.stdin.Write(b)
		case kind == FrameStdinClose && c.stdinOnce:
			c.closeStdin()
		case kind == FrameResize && c.terminal != nil && len(b) == 4:
			size := unix.Winsize{Row: binary.BigEndian.Uint16(b), Col: binary.BigEndian.Uint16(b[2:])}
			_ = unix.IoctlSetWinsize(int(c.terminal.Fd()), unix.TIOCSWINSZ, &size)
		}
	}
}

// closeStdin closes the command's input. It leaves a terminal open, because the terminal is also the output.
func (c *control) closeStdin() {
	if c.stdin != nil && c.terminal == nil {
		c.stdin.Close()
	}
}
