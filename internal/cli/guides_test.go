package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"tensorstack.dev/batch/internal/cli/kit"
)

// quotedCommand matches a command in a code span. shownCommand matches a command at the beginning of a line of a code
// block or of a comment of an example, or after a semicolon. asides matches what follows a command on such a line: a
// comment, a pipe, a redirection, or a gap of at least three spaces and the text after the gap.
var (
	quotedCommand = regexp.MustCompile("`(?:bin/)?t9k ([^`]+)`")
	shownCommand  = regexp.MustCompile(`^(?:#\s{3}| {4}\$? ?|.*; )(?:bin/)?t9k ([a-z].*)$`)
	asides        = regexp.MustCompile(`\s+#.*$|\s+[|>].*$|\s{3,}.*$`)
)

// TestCommandsInGuidesAndExamples verifies that the program accepts every command in the guides and examples.
func TestCommandsInGuidesAndExamples(t *testing.T) {
	var files []string
	for _, pattern := range []string{"../../README.md", "../../docs/*.md", "../../examples/README.md", "../../examples/*/job.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		files = append(files, found...)
	}
	tried := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			line = strings.TrimRight(line, "\n")
			var commands []string
			for _, m := range quotedCommand.FindAllStringSubmatch(line, -1) {
				commands = append(commands, m[1])
			}
			if m := shownCommand.FindStringSubmatch(line); m != nil && !strings.Contains(m[1], "(go1.") {
				commands = append(commands, strings.Split(asides.ReplaceAllString(m[1], ""), "; t9k ")[0])
			}
			for _, command := range commands {
				tried++
				if err := parses(strings.Fields(command)); err != nil {
					t.Errorf("%s shows t9k %s: %v", file, command, err)
				}
			}
		}
	}
	if tried < 40 {
		t.Errorf("only %d commands were found", tried)
	}
}

// parses returns an error if the program does not accept a command line. It does not run the command.
func parses(args []string) error {
	root := command(kit.New("t9k", genericiooptions.NewTestIOStreamsDiscard()))
	root.InitDefaultCompletionCmd(args...)
	cmd, rest, err := root.Find(args)
	if err != nil || cmd.DisableFlagParsing {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if len(rest) == 0 {
		return nil // the text is only the name of a verb
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}
