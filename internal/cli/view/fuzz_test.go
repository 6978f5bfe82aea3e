package view

import (
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// ours matches the control sequences that Terminal may write.
var ours = regexp.MustCompile("\x1b\\[[0-9;]*[mAGJK]")

// FuzzTerminal verifies that untrusted text that passes through Escape cannot control a terminal, and that only this
// package's own control sequences are written to it.
func FuzzTerminal(f *testing.F) {
	for _, s := range []string{"plain", own + "[31mred" + own + "[0m", "\x1b]52;c;aGk=\a", own + "[2K\x1b[2J", "\u009b31m", own + own + "[", own + "[1x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		steers := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }
		if shown := Terminal(Escape(s)); strings.ContainsFunc(shown, steers) {
			t.Errorf("a text of others, %q, became %q", s, shown)
		}
		if shown := ours.ReplaceAllString(Terminal(s), ""); strings.ContainsFunc(shown, steers) {
			t.Errorf("%q became %q", s, shown)
		}
	})
}
