package cli

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/term"
	"k8s.io/client-go/tools/remotecommand"
)

// raw hands the keys of a terminal on as they are while f runs, and tells f the terminal's size.
func (t *terminal) raw(ctx context.Context, f func(remotecommand.TerminalSizeQueue) error) error {
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
	terminal      *terminal
	width, height int
}

// sizeInterval is how often the size is looked at. The system call costs next to nothing, and there is no signal for it on
// every system.
const sizeInterval = 250 * time.Millisecond

// Next waits until the size differs from that told last; nil at the end.
func (s *sizes) Next() *remotecommand.TerminalSize {
	for {
		width, height := s.terminal.size()
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
