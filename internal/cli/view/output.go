package view

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// OutputLine is one line of the output of a replica.
type OutputLine struct {
	// Name is the name of the replica, and Width the width to which it is padded.
	Name   string
	Width  int
	Colour Colour
	// Text is the line as the replica wrote it.
	Text       string
	TextColour Colour
}

// Line renders the whole line, with its control characters escaped.
func (l OutputLine) Line(st Style) string {
	return l.prefix(st) + st.Paint(l.TextColour, Escape(l.Text))
}

func (l OutputLine) prefix(st Style) string {
	return st.Paint(l.Colour, fmt.Sprintf("%-*s |", l.Width, l.Name)) + " "
}

// Output renders the last lines of some output in at most height lines of at most width columns. A line that is too
// long is wrapped. If a replica has overwritten a line, as progress bars do, Output shows the last version.
func Output(lines []OutputLine, st Style, width, height int) []string {
	var rows []string
	for i := len(lines) - 1; i >= 0 && len(rows) < height; i-- {
		l := lines[i]
		room := max(1, width-max(l.Width, utf8.RuneCountInString(l.Name))-len(" | "))
		parts := columns(Escape(expand(overwritten(l.Text))), room)
		for k := len(parts) - 1; k >= 0 && len(rows) < height; k-- {
			rows = append(rows, l.prefix(st)+st.Paint(l.TextColour, parts[k]))
		}
	}
	for i, k := 0, len(rows)-1; i < k; i, k = i+1, k-1 {
		rows[i], rows[k] = rows[k], rows[i]
	}
	return rows
}

// overwritten returns the last version of a line that carriage returns overwrite: the text after the last carriage
// return, without those at the end.
func overwritten(s string) string {
	s = strings.TrimRight(s, "\r")
	return s[strings.LastIndexByte(s, '\r')+1:]
}

// expand replaces tabs with spaces up to the next multiple of eight columns.
func expand(s string) string {
	if !strings.ContainsRune(s, '\t') {
		return s
	}
	var b strings.Builder
	column := 0
	for _, r := range s {
		if r == '\t' {
			n := 8 - column%8
			b.WriteString(strings.Repeat(" ", n))
			column += n
			continue
		}
		b.WriteRune(r)
		column += columnsOf(r)
	}
	return b.String()
}

// columns breaks a text into parts of at most n columns. It returns at least one part.
func columns(s string, n int) []string {
	var parts []string
	start, used := 0, 0
	for i, r := range s {
		w := columnsOf(r)
		if used+w > n && i > start {
			parts = append(parts, s[start:i])
			start, used = i, 0
		}
		used += w
	}
	return append(parts, s[start:])
}

// columnsOf returns the number of columns that a terminal needs for a character.
func columnsOf(r rune) int {
	if r < 0x300 {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}
