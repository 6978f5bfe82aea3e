package view

import (
	"fmt"
	"io"
	"strings"
)

// Screen draws frames over one another at the lower end of a terminal, so that earlier output scrolls away as usual.
type Screen struct {
	out io.Writer
	// drawn holds the width in columns of each line of the last frame.
	drawn []int
}

// NewScreen returns a screen that draws on a terminal.
func NewScreen(out io.Writer) *Screen { return &Screen{out: out} }

// Draw replaces the last frame. width is the terminal's current width: Draw also clears lines of the last frame that
// the terminal has wrapped in the meantime.
func (s *Screen) Draw(lines []string, width int) error {
	var b strings.Builder
	up := 0
	for _, w := range s.drawn {
		up += 1 + max(0, w-1)/max(1, width)
	}
	if up > 0 {
		fmt.Fprintf(&b, own+"[%dA", up)
	}
	s.drawn = s.drawn[:0]
	for _, l := range lines {
		b.WriteString(own + "[G" + l + own + "[K\n")
		s.drawn = append(s.drawn, visible(l))
	}
	b.WriteString(own + "[J")
	if _, err := io.WriteString(s.out, b.String()); err != nil {
		return fmt.Errorf("drawing: %w", err)
	}
	return nil
}

// visible returns the number of columns of a line outside of escape sequences.
func visible(l string) int {
	n := 0
	for {
		before, rest, found := strings.Cut(l, own+"[")
		for _, r := range before {
			n += columnsOf(r)
		}
		if !found {
			return n
		}
		_, l, _ = strings.Cut(rest, "m")
	}
}
