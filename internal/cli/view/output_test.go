package view

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOutputFitsTheTerminal(t *testing.T) {
	line := func(text string) OutputLine { return OutputLine{Name: "w-0", Width: 4, Colour: "36", Text: text} }
	for name, test := range map[string]struct {
		lines  []string
		width  int
		height int
		want   []string
	}{
		"short":                         {[]string{"a", "b"}, 20, 5, []string{"w-0  | a", "w-0  | b"}},
		"only the last lines":           {[]string{"a", "b", "c"}, 20, 2, []string{"w-0  | b", "w-0  | c"}},
		"a long line continues":         {[]string{"abcdefgh"}, 10, 5, []string{"w-0  | abc", "w-0  | def", "w-0  | gh"}},
		"the end of a long line":        {[]string{"abcdefgh"}, 10, 2, []string{"w-0  | def", "w-0  | gh"}},
		"an empty line":                 {[]string{""}, 20, 2, []string{"w-0  | "}},
		"a progress bar":                {[]string{"10%\r50%\r100%\r"}, 20, 2, []string{"w-0  | 100%"}},
		"tabs":                          {[]string{"a\tb"}, 20, 2, []string{"w-0  | a       b"}},
		"wide characters":               {[]string{"数数数"}, 11, 5, []string{"w-0  | 数数", "w-0  | 数"}},
		"control characters":            {[]string{"\x1b[2J\xff[2J"}, 40, 5, []string{`w-0  | \u001b[2J\xff[2J`}},
		"a terminal of no useful width": {[]string{"ab"}, 3, 5, []string{"w-0  | a", "w-0  | b"}},
	} {
		t.Run(name, func(t *testing.T) {
			var lines []OutputLine
			for _, l := range test.lines {
				lines = append(lines, line(l))
			}
			if diff := cmp.Diff(test.want, Output(lines, Style{}, test.width, test.height)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if got := Terminal(line("x").Line(Style{Colour: true})); got != "\x1b[36mw-0  |\x1b[0m x" {
		t.Errorf("a line in colour is %q", got)
	}
}

// TestScreenCountsColumns verifies that each wide character counts as the columns that it occupies.
func TestScreenCountsColumns(t *testing.T) {
	var b strings.Builder
	s := NewScreen(&b)
	for range 2 {
		if err := s.Draw([]string{"数数数"}, 4); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(b.String(), own+"[2A") {
		t.Errorf("the screen does not go back by two lines: %q", b.String())
	}
}
