package escape

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// FuzzEscape verifies that the results of Control and Directed are valid UTF-8 without control characters other than
// line breaks and tabs, that Directed also leaves no character that changes the text direction, that escaping a result
// again does not change it, and that Control does not change valid text without such control characters.
func FuzzEscape(f *testing.F) {
	for _, s := range []string{"plain\tä\n", "\x1b[2J", "\u009b2J", "\x80\xff", "a\rb", "\u202egpj.exe", "\ufffd", "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		visible, directed := Control(s), Directed(s)
		if strings.ContainsFunc(visible, control) || !utf8.ValidString(visible) {
			t.Errorf("%q became %q", s, visible)
		}
		turns := func(r rune) bool { return unicode.Is(unicode.Bidi_Control, r) }
		if strings.ContainsFunc(directed, control) || strings.ContainsFunc(directed, turns) || !utf8.ValidString(directed) {
			t.Errorf("%q became %q", s, directed)
		}
		if Control(visible) != visible || Directed(directed) != directed {
			t.Errorf("%q is escaped twice", s)
		}
		if utf8.ValidString(s) && !strings.ContainsFunc(s, control) && visible != s {
			t.Errorf("%q is harmless and became %q", s, visible)
		}
	})
}
