package progress

import (
	"bytes"
	"fmt"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"tensorstack.dev/batch/internal/cli/clitest"
	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/output"
	"tensorstack.dev/batch/internal/cli/selection"
	"tensorstack.dev/batch/internal/cli/view"
)

func TestLogsSelectTheFirstReplica(t *testing.T) {
	job := newTrack(clitest.LargeJob(t))
	first, err := FirstLogs.selection(job)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(first.Replicas()); got != "[worker-0]" {
		t.Errorf("the first replica is %s", got)
	}
	all, err := AllLogs.selection(job)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(all.Replicas()); n != 12_345 {
		t.Errorf("all replicas are %d", n)
	}
	var l Logs
	if err := l.Set("some"); err == nil || l.Set("all") != nil || l != AllLogs {
		t.Errorf("--logs=some: %v, --logs=all: %s", err, l)
	}
}

// TestOutputIsPrintedOrKept verifies that lines are printed immediately without a terminal, and that a terminal keeps
// the last lines for its live view.
func TestOutputIsPrintedOrKept(t *testing.T) {
	var out bytes.Buffer
	p := kit.New("t9k", genericiooptions.IOStreams{Out: &out, ErrOut: &out})
	d := &display{Program: p, out: outputs{width: 9, lines: make(chan jobLine, pendingLines)}}
	line := func(text string) jobLine {
		return jobLine{output.Line{Replica: selection.Replica{Role: "worker"}, Text: text}, "worker-0"}
	}
	d.out.lines <- line("second")
	d.takeLines(line("first \x1b[31mred\x1b[0m \xff[2J"))
	if got, want := out.String(), "worker-0  | first \\u001b[31mred\\u001b[0m \\xff[2J\nworker-0  | second\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
	if pane := d.pane(80, 24); pane != nil {
		t.Errorf("without a terminal there is a pane: %q", pane)
	}
	d.screen = view.NewScreen(&out)
	for i := range 100 {
		d.takeLine(line(fmt.Sprint("line ", i)))
	}
	pane := d.pane(80, 24)
	if len(pane) != 1+24/paneShare || pane[0] != "" || pane[1] != "worker-0  | line 92" || pane[8] != "worker-0  | line 99" {
		t.Errorf("the pane of a terminal with 24 lines is %q", pane)
	}
}
