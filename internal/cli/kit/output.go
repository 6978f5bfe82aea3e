package kit

import (
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"

	"tensorstack.dev/batch/internal/cli/view"
)

// Format is the output format that -o selects; empty for readable text.
type Format string

// Output formats.
const (
	Wide Format = "wide"
	Name Format = "name"
	JSON Format = "json"
	YAML Format = "yaml"
)

// AddOutputFlag adds the flag -o with the given formats.
func AddOutputFlag(cmd *cobra.Command, o *Format, formats ...Format) {
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = string(f)
	}
	cmd.Flags().VarP(&formatValue{o, names}, "output", "o", "Output format: "+strings.Join(names, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}

// formatValue is a flag with a fixed set of values.
type formatValue struct {
	format  *Format
	allowed []string
}

func (v *formatValue) String() string { return string(*v.format) }
func (v *formatValue) Type() string   { return "format" }

func (v *formatValue) Set(s string) error {
	if !slices.Contains(v.allowed, s) {
		return fmt.Errorf("must be one of %s", strings.Join(v.allowed, ", "))
	}
	*v.format = Format(s)
	return nil
}

// PrintObject writes an object as JSON or YAML, without its managed fields.
func PrintObject(w io.Writer, o Format, object runtime.Object) error {
	var p printers.ResourcePrinter = &printers.JSONPrinter{}
	if o == YAML {
		p = &printers.YAMLPrinter{}
	}
	p = &printers.OmitManagedFieldsPrinter{Delegate: p}
	if err := p.PrintObj(object, w); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// safeWriter escapes the control sequences in text from other sources, such as names, messages and logs, before the
// text reaches a terminal. Verbs write to a safeWriter unless they call Raw.
type safeWriter struct{ out *stream }

func (w safeWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.out, view.Terminal(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// stream is an output stream of the process. It keeps the first error of its writes, because most callers ignore the
// error of a write. It is safe for concurrent use if out is.
type stream struct {
	out   io.Writer
	mutex sync.Mutex
	err   error
}

func (s *stream) Write(p []byte) (int, error) {
	n, err := s.out.Write(p)
	if err != nil {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		if s.err == nil {
			s.err = err
		}
	}
	return n, err //nolint:wrapcheck // callers say what they were writing
}

func (s *stream) firstError() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.err
}

// Raw returns the writer inside a safeWriter, for bytes that must not be changed. It returns any other writer
// unchanged.
func Raw(w io.Writer) io.Writer {
	if safe, ok := w.(safeWriter); ok {
		return safe.out
	}
	return w
}

// StyleOf returns the style for a writer. It has colours if the writer is a terminal, NO_COLOR is unset or empty, and
// TERM is not "dumb".
func StyleOf(w any) view.Style {
	return view.Style{Colour: TerminalOf(w) != nil && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// PrintTable prints a table that fits the width of the terminal.
func (p *Program) PrintTable(t view.Table) error {
	return PrintLines(p.Out, t.Lines(StyleOf(p.Out), "", TerminalOf(p.Out).Width()))
}

// PrintLines prints lines, each with a line break.
func PrintLines(w io.Writer, lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	if _, err := io.WriteString(w, strings.Join(lines, "\n")+"\n"); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// ListOfObjects returns the objects as a v1 List.
func ListOfObjects(objects []*unstructured.Unstructured) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
	for _, u := range objects {
		list.Items = append(list.Items, *u)
	}
	return list
}

// PrintJobs prints jobs as JSON or YAML: as a v1 List or, if single is true, the first job as a single object.
func PrintJobs(w io.Writer, o Format, jobs []*Job, single bool) error {
	if single {
		return PrintObject(w, o, jobs[0].Raw)
	}
	objects := make([]*unstructured.Unstructured, len(jobs))
	for i, j := range jobs {
		objects[i] = j.Raw
	}
	return PrintObject(w, o, ListOfObjects(objects))
}

// PrintNames prints the addresses of jobs, KIND/NAME, one per line.
func (p *Program) PrintNames(jobs ...*Job) {
	for _, j := range jobs {
		fmt.Fprintln(p.Out, j.Ref())
	}
}

// PrintEach prints objects one after the other as YAML, or as one v1 List as JSON. It stops at the first error of
// objects and returns it.
func (p *Program) PrintEach(o Format, objects iter.Seq2[*unstructured.Unstructured, error]) error {
	var list []*unstructured.Unstructured
	separator := ""
	for u, err := range objects {
		if err != nil {
			return err
		}
		if o == JSON {
			list = append(list, u)
			continue
		}
		fmt.Fprint(p.Out, separator)
		separator = "---\n"
		if err := PrintObject(p.Out, o, u); err != nil {
			return err
		}
	}
	if o == JSON {
		return PrintObject(p.Out, o, ListOfObjects(list))
	}
	return nil
}
