package kit

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/term"
	"k8s.io/client-go/tools/remotecommand"
)

// Terminal is a terminal that a stream is connected to.
type Terminal struct{ fd int }

// TerminalOf returns the terminal of a stream; nil for a file or a pipe.
func TerminalOf(w any) *Terminal {
	if safe, ok := w.(safeWriter); ok {
		w = safe.out
	}
	if s, ok := w.(*stream); ok {
		w = s.out
	}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return &Terminal{int(f.Fd())}
}

// Size returns the terminal's current width and height in characters; 80 and 24 if they are unknown.
func (t *Terminal) Size() (width, height int) {
	width, height, err := term.GetSize(t.fd)
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// Width returns the terminal's current width in characters. It returns 0, which means unbounded, if there is no
// terminal.
func (t *Terminal) Width() int {
	if t == nil {
		return 0
	}
	width, _ := t.Size()
	return width
}

// Raw puts the terminal into raw mode while f runs. f receives a queue of the terminal's sizes, which ends when f
// returns or ctx is done.
func (t *Terminal) Raw(ctx context.Context, f func(remotecommand.TerminalSizeQueue) error) error {
	state, err := term.MakeRaw(t.fd)
	if err != nil {
		return fmt.Errorf("preparing the terminal: %w", err)
	}
	defer func() { _ = term.Restore(t.fd, state) }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	return f(&sizes{done: ctx.Done(), terminal: t})
}

// sizes is a remotecommand.TerminalSizeQueue for a terminal.
type sizes struct {
	// done is closed when the queue ends.
	done          <-chan struct{}
	terminal      *Terminal
	width, height int
}

// sizeInterval is the interval at which the size is polled. The system call is cheap, and some systems have no signal
// for changes.
const sizeInterval = 250 * time.Millisecond

// Next waits for a size that differs from the last one. It returns nil when the queue has ended.
func (s *sizes) Next() *remotecommand.TerminalSize {
	for {
		width, height := s.terminal.Size()
		if width != s.width || height != s.height {
			s.width, s.height = width, height
			return &remotecommand.TerminalSize{Width: uint16(width), Height: uint16(height)}
		}
		select {
		case <-s.done:
			return nil
		case <-time.After(sizeInterval):
		}
	}
}
