package kit

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/term"
	"k8s.io/client-go/tools/remotecommand"
)

// Terminal is the one that a writer leads to.
type Terminal struct{ fd int }

// TerminalOf is nil where output goes to a file or a pipe.
func TerminalOf(w any) *Terminal {
	if safe, ok := w.(safeWriter); ok {
		w = safe.out
	}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return &Terminal{int(f.Fd())}
}

// Size is the terminal's present width and height; that of the oldest ones where it does not say.
func (t *Terminal) Size() (width, height int) {
	width, height, err := term.GetSize(t.fd)
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// Width is the terminal's present width; 0, which is no bound, where there is no terminal.
func (t *Terminal) Width() int {
	if t == nil {
		return 0
	}
	width, _ := t.Size()
	return width
}

// Raw hands the keys of a terminal on as they are while f runs, and tells f the terminal's size.
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

// sizes tells the size of a terminal whenever it has changed.
type sizes struct {
	// done ends the telling.
	done          <-chan struct{}
	terminal      *Terminal
	width, height int
}

// sizeInterval is how often the size is looked at. The system call costs next to nothing, and there is no signal for it on
// every system.
const sizeInterval = 250 * time.Millisecond

// Next waits until the size differs from that told last; nil at the end.
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
