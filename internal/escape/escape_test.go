package escape

import "testing"

func TestDirectionsAndControlCharactersAreShown(t *testing.T) {
	for text, want := range map[string]string{
		"plain, ä, שלום\tand\nlines": "plain, ä, שלום\tand\nlines",
		"\x1b[31mred":                `\u001b[31mred`,
		"a\rb":                       `a\rb`,
		"\u202egpj.exe":              `\u202egpj.exe`,
		"\u2066x\u2069\u200f":        `\u2066x\u2069\u200f`,
		"\x80\xff":                   `\x80\xff`,
		"\u009b2J":                   `\u009b2J`,
	} {
		if got := Directed(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	if got := Control("\u202eabc"); got != "\u202eabc" {
		t.Errorf("Control changed a direction: %q", got)
	}
}
