// Package view turns jobs into text for people: tables, the live picture of a running job, the lines that tell of its
// transitions and its full description. It is pure: the clock, the width and the height are arguments.
package view

import (
	"strings"
	"unicode/utf8"
)

// Colour is the SGR parameter of a text; empty for plain text.
type Colour string

// The colours in use, with what they stand for.
const (
	Plain Colour = ""
	Bold  Colour = "1"
	Dim   Colour = "2"
	Bad   Colour = "31"
	Good  Colour = "32"
	Wait  Colour = "33"
)

// Style says how text may be adorned. The zero value is plain.
type Style struct {
	// Colour allows escape sequences.
	Colour bool
}

// Paint wraps s in the escape sequences of a colour, where the style allows.
func (st Style) Paint(c Colour, s string) string {
	if !st.Colour || c == Plain || s == "" {
		return s
	}
	return "\x1b[" + string(c) + "m" + s + "\x1b[0m"
}

// Cell is one field of a table.
type Cell struct {
	Text   string
	Colour Colour
}

// Plainly makes cells without colour.
func Plainly(texts ...string) []Cell {
	cells := make([]Cell, len(texts))
	for i, t := range texts {
		cells[i].Text = t
	}
	return cells
}

// Table is a header and rows, written in columns three spaces apart. A row may be shorter than the header.
type Table struct {
	Header []string
	Rows   [][]Cell
}

// Lines renders the table, each line indented and cut to width characters; 0 stands for no bound.
func (t Table) Lines(st Style, indent string, width int) []string {
	rows := t.Rows
	if len(t.Header) > 0 {
		head := Plainly(t.Header...)
		for i := range head {
			head[i].Colour = Bold
		}
		rows = append([][]Cell{head}, rows...)
	}
	widths := columnWidths(rows)
	lines := make([]string, 0, len(rows))
	for _, row := range rows {
		var b line
		b.max = width
		b.add(st, Cell{Text: indent})
		for i, c := range row {
			b.add(st, c)
			if i < len(row)-1 {
				b.pad(widths[i] - utf8.RuneCountInString(c.Text) + 3)
			}
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return lines
}

func columnWidths(rows [][]Cell) []int {
	var widths []int
	for _, row := range rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c.Text))
		}
	}
	return widths
}

// line collects text up to max characters; 0 stands for no bound.
type line struct {
	strings.Builder
	used, max int
}

func (l *line) add(st Style, c Cell) {
	text := c.Text
	if l.max > 0 {
		text = cut(text, l.max-l.used)
	}
	l.used += utf8.RuneCountInString(text)
	l.WriteString(st.Paint(c.Colour, text))
}

func (l *line) pad(n int) {
	if l.max > 0 {
		n = min(n, l.max-l.used)
	}
	if n > 0 {
		l.WriteString(strings.Repeat(" ", n))
		l.used += n
	}
}

// cut shortens s to n characters and marks what is missing.
func cut(s string, n int) string {
	switch {
	case n <= 0:
		return ""
	case utf8.RuneCountInString(s) <= n:
		return s
	case n == 1:
		return "…"
	}
	return string([]rune(s)[:n-1]) + "…"
}

// oneLine flattens a message, so that it cannot break a table or a redrawn screen.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r < 0x20 || r == 0x7f }), " ")
}
