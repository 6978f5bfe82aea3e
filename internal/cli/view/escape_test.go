package view

import (
	"strings"
	"testing"
)

func TestEscapeReplacesControlCharacters(t *testing.T) {
	for text, want := range map[string]string{
		"plain text, é, 训练\n\ttwo": "plain text, é, 训练\n\ttwo",
		"\x1b[2J\x1b]0;title\x07":  `\u001b[2J\u001b]0;title\u0007`,
		"10 %\r20 %":               `10 %\r20 %`,
		"\u009b31m\x7f\b":          `\u009b31m\u007f\u0008`,
		"\x9b31m \xff[31m caf\xe9": `\x9b31m \xff[31m caf\xe9`,
	} {
		if got := Escape(text); got != want {
			t.Errorf("Escape(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestTerminalKeepsOnlyOwnControlSequences(t *testing.T) {
	painted := Style{Colour: true}.Paint(Bad, "a\x1b[2Jb")
	for text, want := range map[string]string{
		painted:              "\x1b[31ma\\u001b[2Jb\x1b[0m",
		own + "[2Jx":         "\x1b[2Jx",
		own + "]0;title\a":   `\xff]0;title\u0007`,
		own + "[31":          `\xff[31`,
		Escape(own + "[31m"): `\xff[31m`,
		"":                   "",
	} {
		if got := Terminal(text); got != want {
			t.Errorf("Terminal(%q) = %q, want %q", text, got, want)
		}
	}
}

// TestTableCountsEscapedCharacters verifies that escaped characters count in the widths of columns.
func TestTableCountsEscapedCharacters(t *testing.T) {
	table := Table{Header: []string{"NAME", "WHY"}, Rows: [][]Cell{Plainly("a\x1b[2J", "b\r"), Plainly("c", "d")}}
	want := "NAME         WHY\na\\u001b[2J   b\\r\nc            d"
	if got := strings.Join(table.Lines(Style{}, "", 0), "\n"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
