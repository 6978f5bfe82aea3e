package view

import (
	"embed"
	"path"
	"strings"
	"testing"
	"time"

	"tensorstack.dev/batch/internal/testing/golden"
)

//go:embed testdata/errors/*.log
var errorLogs embed.FS

// TestErrorLines verifies that exactly the lines with errors are marked in the test logs. In the files, such lines
// begin with "!", and \x1b and \r stand for these characters.
func TestErrorLines(t *testing.T) {
	files, err := errorLogs.ReadDir("testdata/errors")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		t.Run(f.Name(), func(t *testing.T) {
			file := path.Join("testdata/errors", f.Name())
			data, err := errorLogs.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			source := LogSource{Replica: "w-0"}
			for line := range strings.Lines(string(data)) {
				text := strings.TrimSuffix(line[2:], "\n")
				mark := "  "
				if source.Line(time.Time{}, strings.NewReplacer(`\x1b`, "\x1b", `\r`, "\r").Replace(text)).Error {
					mark = "! "
				}
				got.WriteString(mark + text + "\n")
			}
			golden.Compare(t, file, got.String())
		})
	}
}

func TestUnfinishedTracebackEnds(t *testing.T) {
	source := LogSource{}
	line := func(text string) bool { return source.Line(time.Time{}, text).Error }
	if !line("Traceback (most recent call last):") || !line(`  File "x.py", line 1`) {
		t.Fatal("the traceback is not recognised")
	}
	for range foreignLines + 1 {
		line("another line of output")
	}
	if line("  an indented line") {
		t.Error("a traceback without an end marks lines for ever")
	}
}

func BenchmarkErrorLines(b *testing.B) {
	source := LogSource{Replica: "w-0"}
	for b.Loop() {
		source.Line(time.Time{}, "epoch 1  step 000123  loss 2.3172  lr 0.00031  2,941 img/s at 0.3 s")
	}
}
