// Package escape makes control characters visible in untrusted text, such as names, messages and logs.
package escape

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Control replaces control characters and bytes that are not UTF-8 with the escapes of JSON and Go, so that the text
// shows them and no program interprets them. Line breaks and tabs stay.
func Control(s string) string { return replace(s, control) }

// Directed does what Control does, and also escapes characters that change the text direction, because they can make
// text display differently from its content.
func Directed(s string) string {
	return replace(s, func(r rune) bool { return control(r) || unicode.Is(unicode.Bidi_Control, r) })
}

func control(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }

func replace(s string, bad func(rune) bool) string {
	if !strings.ContainsFunc(s, bad) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == '\r':
			b.WriteString(`\r`)
		case bad(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(s[:size])
		}
		s = s[size:]
	}
	return b.String()
}
