package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"

	"tensorstack.dev/batch/internal/cli/view"
)

// output is the format that -o asks for; empty for people.
type output string

// Formats of output.
const (
	outputWide output = "wide"
	outputName output = "name"
	outputJSON output = "json"
	outputYAML output = "yaml"
)

// addOutputFlag adds -o with the formats that a verb has.
func addOutputFlag(cmd *cobra.Command, o *output, formats ...output) {
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = string(f)
	}
	cmd.Flags().VarP(&outputValue{o, names}, "output", "o", "Output format: "+strings.Join(names, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}

// outputValue is a flag that takes one of a few words.
type outputValue struct {
	format  *output
	allowed []string
}

func (v *outputValue) String() string { return string(*v.format) }
func (v *outputValue) Type() string   { return "format" }

func (v *outputValue) Set(s string) error {
	if !slices.Contains(v.allowed, s) {
		return fmt.Errorf("must be one of %s", strings.Join(v.allowed, ", "))
	}
	*v.format = output(s)
	return nil
}

// printObject writes an object as JSON or YAML.
func printObject(w io.Writer, o output, object runtime.Object) error {
	var p printers.ResourcePrinter = &printers.JSONPrinter{}
	if o == outputYAML {
		p = &printers.YAMLPrinter{}
	}
	p = &printers.OmitManagedFieldsPrinter{Delegate: p}
	if err := p.PrintObj(object, w); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// safeWriter shows the control sequences in what others wrote, such as names, messages and logs, instead of passing them on
// to a terminal. All verbs write to one.
type safeWriter struct{ out io.Writer }

func (w safeWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.out, view.Terminal(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// raw is the writer below, for bytes that somebody asked for as they are.
func raw(w io.Writer) io.Writer {
	if safe, ok := w.(safeWriter); ok {
		return safe.out
	}
	return w
}

// terminal is the one that a writer leads to.
type terminal struct{ fd int }

// terminalOf is nil where output goes to a file or a pipe.
func terminalOf(w any) *terminal {
	if safe, ok := w.(safeWriter); ok {
		w = safe.out
	}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return &terminal{int(f.Fd())}
}

// size is the terminal's present width and height; that of the oldest ones where it does not say.
func (t *terminal) size() (width, height int) {
	width, height, err := term.GetSize(t.fd)
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// width is the terminal's present width; 0, which is no bound, where there is no terminal.
func (t *terminal) width() int {
	if t == nil {
		return 0
	}
	width, _ := t.size()
	return width
}

// styleOf allows colours on a terminal, unless NO_COLOR is set to anything or TERM says that there are none.
func styleOf(w any) view.Style {
	return view.Style{Colour: terminalOf(w) != nil && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// printTable writes a table, as wide as the terminal.
func (a *app) printTable(t view.Table) error {
	return printLines(a.Out, t.Lines(styleOf(a.Out), "", terminalOf(a.Out).width()))
}

// printLines writes lines, each ended.
func printLines(w io.Writer, lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	if _, err := io.WriteString(w, strings.Join(lines, "\n")+"\n"); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// clock is the time of day as it stands before transitions. Like all times here it is of UTC, and says so.
func clock(t time.Time) string { return t.UTC().Format("15:04:05Z") }

// hideUnless hides flags that are not named.
func hideUnless(shown map[string]bool) func(*pflag.Flag) {
	return func(f *pflag.Flag) { f.Hidden = !shown[f.Name] }
}

// listOfObjects is a v1 List.
func listOfObjects(objects []*unstructured.Unstructured) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
	for _, u := range objects {
		list.Items = append(list.Items, *u)
	}
	return list
}
