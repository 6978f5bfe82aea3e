package view

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tensorstack.dev/batch/internal/engine"
)

// SubmitDiagnostic is an error or a warning about a line of a manifest. Line counts from 1. Path is the path of the
// field; empty if the diagnostic is not about a field.
type SubmitDiagnostic struct {
	Line          int
	Path, Message string
}

// Rendered is an object that the operator would create.
type Rendered struct{ Name, Text string }

// Submitted is an object of a manifest.
type Submitted struct {
	Ref, Namespace string
	Line           int
	// Job is the job if the object is a job without errors; nil otherwise.
	Job      *engine.Job
	Rendered []Rendered
	// More is the number of pods that are not rendered.
	More int
}

// SubmitInput is a draft manifest with the objects from which its page is computed, such as queues and nodes. Queues
// and Nodes may be nil if Checked is false.
type SubmitInput struct {
	Text, Namespace string
	// Names is true if the manifest sets the namespace of every object.
	Names bool
	// Checked is false if no manifest was sent. Problem is the error if the dry run or the creation failed for a
	// reason other than the manifest.
	Checked bool
	Problem string
	Errors  []SubmitDiagnostic
	// Warnings report fields without effect.
	Warnings []SubmitDiagnostic
	Objects  []Submitted
	Queues   *QueuesInput
	Nodes    *NodesInput
	Jobs     []JobRow
}

// NumberRun is a run of lines in the column of line numbers, either all with or all without errors.
type NumberRun struct {
	Text string
	Bad  bool
}

// SourceLine is a line of the manifest.
type SourceLine struct {
	N    int
	Text string
	Bad  bool
}

// DiagnosticCard is an error or a warning, with its line and the line before.
type DiagnosticCard struct {
	SubmitDiagnostic
	Source []SourceLine
}

// SubmitCard is an object that would be created.
type SubmitCard struct {
	Ref, Namespace string
	Line           int
	// Replicas is the number of a job's replicas by role; empty for other objects.
	Replicas string
	Room     *Room
	Rendered []Rendered
	More     int
}

// SubmitPage is the page for submitting manifests.
type SubmitPage struct {
	Text, Namespace string
	Namespaces      []string
	// Rows is the number of lines of the text field.
	Rows    int
	Numbers []NumberRun
	Checked bool
	Problem string
	// Summary is the result of the check in one or two sentences; empty if nothing was checked.
	Summary  string
	Errors   []DiagnosticCard
	Warnings []DiagnosticCard
	// MoreErrors is the number of errors that are not listed. Hint is a likely cause of the errors; empty if there is
	// none.
	MoreErrors int
	Hint       string
	Objects    []SubmitCard
	// Valid is true if the objects can be created. Title and Effect describe the button, and Command is the equivalent
	// t9k command.
	Valid                  bool
	Title, Effect, Command string
	Hidden                 []Hidden
}

const (
	// minRows is the smallest height of the text field in lines.
	minRows = 22
	// listedErrors is the largest number of errors that a page lists.
	listedErrors = 50
	// maxSource is the largest number of characters of a line that a card shows, and of bytes of a variable in a hint.
	maxSource = 200
)

// Submit returns the page of a manifest.
func Submit(in *SubmitInput) SubmitPage {
	lines := strings.Split(in.Text, "\n")
	p := SubmitPage{Text: in.Text, Namespace: in.Namespace, Rows: max(minRows, len(lines)+1), Checked: in.Checked, Problem: in.Problem}
	for i := range in.Jobs {
		p.Namespaces = append(p.Namespaces, in.Jobs[i].Namespace)
	}
	slices.Sort(p.Namespaces)
	p.Namespaces = slices.Compact(p.Namespaces)
	p.number(in.Errors)
	if !in.Checked {
		return p
	}
	p.Errors, p.Warnings = cards(in.Errors, lines), cards(in.Warnings, lines)
	p.MoreErrors = len(in.Errors) - len(p.Errors)
	for i := range in.Objects {
		p.Objects = append(p.Objects, in.submitCard(&in.Objects[i]))
	}
	p.Hidden = in.Queues.Hidden
	p.Valid = len(in.Errors) == 0 && len(in.Objects) > 0 && in.Problem == ""
	switch {
	case len(in.Errors) == 1:
		p.Summary = "1 error. Nothing can be created before it is corrected."
	case len(in.Errors) > 1:
		p.Summary = fmt.Sprintf("%d errors. Nothing can be created before they are corrected.", len(in.Errors))
	case len(in.Objects) == 0:
		p.Summary = "The text holds no object."
	case in.Problem == "":
		p.Summary = "No errors. The cluster accepts it."
	default:
		p.Summary = "No errors in the text, but a request to the cluster failed."
	}
	if at := templated.FindStringIndex(in.Text); len(in.Errors) > 0 && at != nil {
		p.Hint = fmt.Sprintf("Line %d has %s, a variable of a template. The console submits manifests as they are: fill in variables first.",
			1+strings.Count(in.Text[:at[0]], "\n"), in.Text[at[0]:min(at[1], at[0]+maxSource)])
	}
	p.ask(in)
	return p
}

// templated matches variables of templates.
var templated = regexp.MustCompile(`\{\{[^}\n]*\}\}|\$\{\w+\}`)

// number sets the line numbers and marks the lines with errors.
func (p *SubmitPage) number(diags []SubmitDiagnostic) {
	bad := map[int]bool{}
	for _, f := range diags {
		bad[f.Line] = true
	}
	var b strings.Builder
	for n := 1; n <= p.Rows; n++ {
		b.WriteString(strconv.Itoa(n) + "\n")
		if n == p.Rows || bad[n+1] != bad[n] {
			p.Numbers = append(p.Numbers, NumberRun{b.String(), bad[n]})
			b.Reset()
		}
	}
}

// cards returns the cards of the first listedErrors diagnostics.
func cards(diags []SubmitDiagnostic, lines []string) []DiagnosticCard {
	var all []DiagnosticCard
	for _, f := range diags[:min(len(diags), listedErrors)] {
		c := DiagnosticCard{SubmitDiagnostic: f}
		for n := max(1, f.Line-1); n <= min(f.Line, len(lines)); n++ {
			text := []rune(lines[n-1][:min(len(lines[n-1]), 4*maxSource)])
			if len(text) > maxSource {
				text = append(text[:maxSource], '…')
			}
			c.Source = append(c.Source, SourceLine{N: n, Text: string(text), Bad: n == f.Line})
		}
		all = append(all, c)
	}
	return all
}

// ask sets the title, the effect and the command of the button.
func (p *SubmitPage) ask(in *SubmitInput) {
	jobs := 0
	for i := range in.Objects {
		if in.Objects[i].Job != nil {
			jobs++
		}
	}
	others := len(in.Objects) - jobs
	counted := func(n int, one, many string) string {
		if n == 1 {
			return "1 " + one
		}
		return fmt.Sprintf("%d %s", n, many)
	}
	switch {
	case others == 0:
		p.Title = "Run " + counted(jobs, "job", "jobs")
	case jobs == 0:
		p.Title = "Create " + counted(others, "object", "objects")
	default:
		p.Title = fmt.Sprintf("Run %s, with %s", counted(jobs, "job", "jobs"), counted(others, "other object", "other objects"))
	}
	var names []string
	for i := range in.Objects {
		o := &in.Objects[i]
		names = append(names, strings.TrimPrefix(o.Namespace+"/", "/")+o.Ref)
	}
	if more := len(names) - 5; more > 0 {
		names = append(names[:5], fmt.Sprintf("%d more", more))
	}
	p.Effect = "Creates " + strings.Join(names, ", ") + "."
	p.Command = "t9k run -f job.yaml"
	if !in.Names {
		p.Command = "t9k run -n " + in.Namespace + " -f job.yaml"
	}
}

func (in *SubmitInput) submitCard(o *Submitted) SubmitCard {
	c := SubmitCard{Ref: o.Ref, Namespace: o.Namespace, Line: o.Line, Rendered: o.Rendered, More: o.More}
	if o.Job == nil {
		return c
	}
	var roles []string
	for i := range o.Job.Roles {
		roles = append(roles, fmt.Sprintf("%s × %d", o.Job.Roles[i].Type, o.Job.Roles[i].Replicas))
	}
	c.Replicas = strings.Join(roles, ", ")
	c.Room = in.room(o.Job)
	return c
}
