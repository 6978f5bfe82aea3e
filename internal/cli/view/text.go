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
	return own + "[" + string(c) + "m" + s + own + "[0m"
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
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
