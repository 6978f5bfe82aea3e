package scheduler

import (
	"bytes"
	"strings"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"tensorstack.dev/batch/internal/cli"
)

// t9k runs a t9k command and returns its standard output. It ends the test if the command fails.
func (s *stage) t9k(args ...string) string {
	s.Helper()
	var out, errs bytes.Buffer
	code := cli.Main(s.Context(), append([]string{"t9k", "--kubeconfig=" + s.Env.Kubeconfig}, args...),
		genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &errs})
	if code != 0 {
		s.Fatalf("t9k %v ends with %d: %s", args, code, errs.String())
	}
	return out.String()
}

// checkLines reports an error for each line that the text lacks. It reduces the space between words to a single space
// before it compares lines.
func (s *stage) checkLines(text string, lines ...string) {
	s.Helper()
	have := map[string]bool{}
	for line := range strings.Lines(text) {
		have[strings.Join(strings.Fields(line), " ")] = true
	}
	for _, line := range lines {
		if !have[line] {
			s.Errorf("no line %q in:\n%s", line, text)
		}
	}
}
