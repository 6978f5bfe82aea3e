package view

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// display is a terminal of unlimited size that interprets the output of Screen and does not wrap lines.
type display struct {
	lines    [][]rune
	row, col int
}

func (d *display) Write(p []byte) (int, error) {
	text := []rune(Terminal(string(p)))
	for i := 0; i < len(text); i++ {
		switch r := text[i]; r {
		case '\n':
			d.row, d.col = d.row+1, 0
		case '\x1b':
			end := i + 2
			for text[end] < 'A' {
				end++
			}
			d.control(string(text[i+2:end]), text[end])
			i = end
		default:
			d.put(r)
		}
	}
	return len(p), nil
}

func (d *display) control(parameter string, final rune) {
	for len(d.lines) <= d.row {
		d.lines = append(d.lines, nil)
	}
	switch final {
	case 'A':
		n, _ := strconv.Atoi(parameter)
		d.row = max(0, d.row-n)
	case 'G':
		d.col = 0
	case 'K':
		d.lines[d.row] = d.lines[d.row][:min(d.col, len(d.lines[d.row]))]
	case 'J':
		d.lines = d.lines[:d.row]
	}
}

func (d *display) put(r rune) {
	for len(d.lines) <= d.row {
		d.lines = append(d.lines, nil)
	}
	for len(d.lines[d.row]) <= d.col {
		d.lines[d.row] = append(d.lines[d.row], ' ')
	}
	d.lines[d.row][d.col] = r
	d.col++
}

func (d *display) text() string {
	var lines []string
	for _, l := range d.lines {
		lines = append(lines, string(l))
	}
	return strings.Join(lines, "\n")
}

func TestScreenShowsTheLastFrameOnly(t *testing.T) {
	d := &display{}
	s := NewScreen(d)
	if _, err := d.Write([]byte("before\n")); err != nil {
		t.Fatal(err)
	}
	for _, frame := range [][]string{
		{"a long first line", "second", "third"},
		{own + "[31mshort" + own + "[0m"},
		{"x", "y", "z", "more"},
		{"x", "yy"},
	} {
		if err := s.Draw(frame, 80); err != nil {
			t.Fatal(err)
		}
		want := strings.ReplaceAll(strings.ReplaceAll("before\n"+strings.Join(frame, "\n"), own+"[31m", ""), own+"[0m", "")
		if diff := cmp.Diff(want, d.text()); diff != "" {
			t.Errorf("after %q (-want +got)\n%s", frame, diff)
		}
	}
}

func TestScreenClearsLinesThatANarrowerTerminalHasWrapped(t *testing.T) {
	var b strings.Builder
	s := NewScreen(&b)
	if err := s.Draw([]string{strings.Repeat("x", 100), "y"}, 120); err != nil {
		t.Fatal(err)
	}
	b.Reset()
	if err := s.Draw([]string{"z"}, 40); err != nil {
		t.Fatal(err)
	}
	// 100 characters take three lines of 40.
	if got := b.String(); !strings.HasPrefix(got, own+"[4A") {
		t.Errorf("the cursor goes up by %q, want 4 lines", got)
	}
}
