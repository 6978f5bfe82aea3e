package view

import (
	"strings"

	"tensorstack.dev/batch/internal/escape"
)

// own stands for the escape character at the beginning of this package's control sequences until Terminal replaces it.
// A text that Escape has returned does not contain this byte, because the byte does not occur in UTF-8.
const own = "\xff"

// Escape replaces control characters and bytes that are not UTF-8 with the escapes of JSON and Go, so that a terminal
// shows them instead of interpreting them. Line breaks and tabs stay.
func Escape(s string) string { return escape.Control(s) }

// Terminal returns a text for a terminal: the control sequences of this package take effect, and all others are
// escaped.
func Terminal(text string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, own)
		b.WriteString(Escape(before))
		if !found {
			return b.String()
		}
		end, ok := sequence(rest)
		if !ok {
			b.WriteString(Escape(own))
			text = rest
			continue
		}
		b.WriteString("\x1b" + rest[:end])
		text = rest[end:]
	}
}

// sequence returns the length of the control sequence at the beginning of a text, without the escape character: a
// bracket, parameters and a letter. ok is false if the text does not begin with a sequence that this package writes.
func sequence(text string) (end int, ok bool) {
	if !strings.HasPrefix(text, "[") {
		return 0, false
	}
	n := 1 + strings.IndexFunc(text[1:], func(r rune) bool { return r != ';' && (r < '0' || r > '9') })
	if n < 1 || !strings.ContainsRune("mAGJK", rune(text[n])) {
		return 0, false
	}
	return n + 1, true
}
