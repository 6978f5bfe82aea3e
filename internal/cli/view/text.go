// Package view renders jobs as text: tables, the live view of a running job, transitions and the full description.
// Rendering is pure: the clock, the width and the height are arguments. Start reading at Job.
package view

import (
	"unicode/utf8"
)

// Colour is the parameter of the terminal's control sequence for a colour (SGR); empty for plain text.
type Colour string

// Colours. Bad is red, Good is green and Wait is yellow.
const (
	Plain Colour = ""
	Bold  Colour = "1"
	Dim   Colour = "2"
	Bad   Colour = "31"
	Good  Colour = "32"
	Wait  Colour = "33"
)

// Style selects how text is decorated. The zero value is plain.
type Style struct {
	// Colour allows escape sequences for colours.
	Colour bool
}

// Paint wraps s in the escape sequences of a colour if the style allows it.
func (st Style) Paint(c Colour, s string) string {
	if !st.Colour || c == Plain || s == "" {
		return s
	}
	return own + "[" + string(c) + "m" + s + own + "[0m"
}

// cut shortens s to n characters and marks the cut.
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
