package cri

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"batch.tensorstack.dev/shim"
	"golang.org/x/sys/unix"
	pb "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// Exec returns a URL at which the kubelet runs a command with streams.
func (s *server) Exec(_ context.Context, q *pb.ExecRequest) (*pb.ExecResponse, error) {
	if _, _, err := s.running(q.ContainerId); err != nil {
		return nil, err
	}
	return s.streams.GetExec(q)
}

// Attach returns a URL at which the kubelet attaches to the streams of a container's command.
func (s *server) Attach(_ context.Context, q *pb.AttachRequest) (*pb.AttachResponse, error) {
	if _, _, err := s.running(q.ContainerId); err != nil {
		return nil, err
	}
	return s.streams.GetAttach(q)
}

// PortForward returns a URL at which the kubelet connects to ports of a pod.
func (s *server) PortForward(_ context.Context, q *pb.PortForwardRequest) (*pb.PortForwardResponse, error) {
	return s.streams.GetPortForward(q)
}

// ReopenContainerLog makes the shim continue in a new log file. It returns when the shim has switched to the file.
func (s *server) ReopenContainerLog(_ context.Context, q *pb.ReopenContainerLogRequest) (*pb.ReopenContainerLogResponse, error) {
	c, _, err := s.running(q.ContainerId)
	if err != nil {
		return nil, err
	}
	conn, err := dialControl(s.cfg.containerDir(c.ID))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte{shim.ControlReopen}); err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(conn)
	if err == nil && string(answer) != shim.StatusOK {
		err = errors.New(string(answer))
	}
	if err != nil {
		return nil, fmt.Errorf("reopening the log of container %s: %w", c.ID, err)
	}
	return &pb.ReopenContainerLogResponse{}, nil
}

// streamRuntime implements the interface that the streaming server calls when a client opens a URL.
type streamRuntime struct{ *server }

// Exec runs a command with the given streams until it exits.
func (s streamRuntime) Exec(ctx context.Context, id string, argv []string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	if tty {
		return s.execTerminal(ctx, id, argv, in, out, resize)
	}
	x, err := s.startInContainer(ctx, id, argv, func(x *command) error {
		return errors.Join(x.copyInput(in), x.copyOutput(&x.cmd.Stdout, writer(out)), x.copyOutput(&x.cmd.Stderr, writer(errOut)))
	})
	if err != nil {
		return err
	}
	return x.wait()
}

// writer converts w to an io.Writer; nil stays nil.
func writer(w io.WriteCloser) io.Writer {
	if w == nil {
		return nil
	}
	return w
}

// execTerminal runs a command on a new terminal until it exits.
func (s streamRuntime) execTerminal(ctx context.Context, id string, argv []string, in io.Reader, out io.Writer, resize <-chan remotecommand.TerminalSize) error {
	var master *os.File
	x, err := s.startInContainer(ctx, id, argv, func(x *command) error {
		m, slave, err := shim.OpenTerminal()
		if err != nil {
			return err
		}
		master, x.childEnds = m, append(x.childEnds, slave)
		x.cmd.Env = append([]string{"TERM=xterm"}, x.cmd.Env...)
		x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = slave, slave, slave
		x.cmd.SysProcAttr.Setctty = true
		return slave.Chown(int(x.cmd.SysProcAttr.Credential.Uid), -1)
	})
	if master != nil {
		defer master.Close()
	}
	if err != nil {
		return err
	}
	// Nothing waits for these two goroutines: the streaming server closes the streams that they read when this function
	// returns.
	go func() {
		for size := range resize {
			_ = unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Height, Col: size.Width})
		}
	}()
	if in != nil {
		go func() { _, _ = io.Copy(master, in) }()
	}
	copied := make(chan struct{})
	go func() {
		if out != nil {
			_, _ = io.Copy(out, master)
			master.Close() // if the client has disconnected, the command gets SIGHUP
		}
		close(copied)
	}()
	err = x.wait()
	select {
	case <-copied: // the copy ends when the last process closes the terminal
	case <-time.After(outputDelay):
	}
	return err
}

// Attach connects the streams to a container's command until the container exits or the client disconnects.
func (s streamRuntime) Attach(ctx context.Context, id string, in io.Reader, out, errOut io.WriteCloser, _ bool, resize <-chan remotecommand.TerminalSize) error {
	c, _, err := s.running(id)
	if err != nil {
		return err
	}
	conn, err := dialControl(s.cfg.containerDir(c.ID))
	if err != nil {
		return fmt.Errorf("attaching to container %s: %w", id, err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte{shim.ControlAttach}); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	toShim := make(chan frame)
	done := make(chan struct{})
	defer close(done)
	send := func(f frame) {
		select {
		case toShim <- f:
		case <-done:
		}
	}
	// Nothing waits for these goroutines: conn is closed when this function returns, and the streaming server then
	// closes the streams that they read.
	go writeFrames(conn, toShim, done)
	go func() {
		for size := range resize {
			b := binary.BigEndian.AppendUint16(nil, size.Height)
			send(frame{shim.FrameResize, binary.BigEndian.AppendUint16(b, size.Width)})
		}
	}()
	if in != nil {
		go func() {
			for {
				b := make([]byte, 4<<10)
				n, err := in.Read(b)
				if n > 0 {
					send(frame{shim.FrameStdin, b[:n]})
				}
				if err != nil {
					send(frame{kind: shim.FrameStdinClose})
					return
				}
			}
		}()
	}
	return copyFrames(conn, out, errOut)
}

// frame is a message on the shim's control socket.
type frame struct {
	kind    byte
	payload []byte
}

// writeFrames writes the frames of all senders to w until done is closed or a write fails.
func writeFrames(w io.Writer, frames <-chan frame, done <-chan struct{}) {
	for {
		select {
		case f := <-frames:
			if shim.WriteFrame(w, f.kind, f.payload) != nil {
				return
			}
		case <-done:
			return
		}
	}
}

// copyFrames copies the command's output until the container exits, the client disconnects or a write fails.
func copyFrames(r io.Reader, out, errOut io.Writer) error {
	for {
		kind, b, err := shim.ReadFrame(r)
		if err != nil { // the container exited, or the client disconnected
			return nil
		}
		w := out
		if kind == shim.FrameStderr {
			w = errOut
		}
		if w == nil {
			continue
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
}

// PortForward connects a stream to a port on the loopback device of a pod.
func (s streamRuntime) PortForward(ctx context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	s.mu.Lock()
	sb := s.sandboxes[id]
	s.mu.Unlock()
	if sb == nil {
		return fmt.Errorf("there is no sandbox %q", id)
	}
	var conn net.Conn
	err := onThread(func() error {
		if !sb.HostNet {
			if err := setns(filepath.Join(s.cfg.sandboxDir(id), "net"), unix.CLONE_NEWNET); err != nil {
				return err
			}
		}
		var err error
		conn, err = dialLocal(ctx, port)
		return err
	})
	if err != nil {
		return fmt.Errorf("connecting to port %d in the pod: %w", port, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	go func() { // ends when stream is closed at the return of this function
		_, _ = io.Copy(conn, stream)
		if c, ok := conn.(*net.TCPConn); ok {
			_ = c.CloseWrite()
		}
	}()
	_, err = io.Copy(stream, conn)
	return err
}

// dialLocal connects to a port on the loopback device of the calling thread's network namespace.
func dialLocal(ctx context.Context, port int32) (net.Conn, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "port-forward")
	defer f.Close()
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return net.FileConn(f)
}
