package sweep

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/observed"
)

// rows returns the rows of the sweep's table.
func (d *driver) rows() []view.SweepRow {
	var rows []view.SweepRow
	for _, m := range d.members {
		r := view.SweepRow{Deleted: m.deleted, Job: view.Job{Name: m.object.GetName()}}
		if m.job != nil {
			r.Job = kit.View(m.job)
		}
		for _, one := range m.settings {
			r.Values = append(r.Values, one.value)
		}
		rows = append(rows, r)
	}
	return rows
}

func (d *driver) parameterNames() []string {
	var names []string
	for _, p := range d.parameters {
		names = append(names, p.name)
	}
	return names
}

// announce prints the size of the sweep and how to stop the command.
func (d *driver) announce() {
	created := 0
	for _, m := range d.members {
		if m.job != nil {
			created++
		}
	}
	text := fmt.Sprintf("Sweep %s in namespace %s: %s", d.name, d.namespace(), view.Count(len(d.members), "job"))
	if created > 0 {
		text += fmt.Sprintf(", of which %d exist", created)
	}
	if d.options.parallel > 0 {
		text += fmt.Sprintf(", at most %d at a time", d.options.parallel)
	}
	text += ". Ctrl-C stops the command; jobs that exist continue."
	for _, l := range view.Wrap(text, "", d.terminal.Width()) {
		fmt.Fprintln(d.Out, l)
	}
}

// draw redraws the live view on a terminal.
func (d *driver) draw() error {
	if d.screen == nil {
		return nil
	}
	width, height := d.terminal.Size()
	lines, whole := view.SweepFrame("Sweep "+d.name, d.parameterNames(), d.rows(), time.Now(), d.style, width, height-2)
	d.whole = whole
	if d.lost != nil {
		lines = append(lines, d.style.Paint(view.Wait, "The API server does not answer; trying again."))
	}
	return d.screen.Draw(lines, width)
}

// conclude prints the table of results, and what to do next. It returns a kit.ExitError if the sweep was interrupted
// before its end or if a job has failed or was deleted.
func (d *driver) conclude(interrupted bool) error {
	rows := d.rows()
	if !d.whole { // a live view with all jobs stays on the terminal as their table
		fmt.Fprintln(d.Out)
		if err := d.PrintTable(view.SweepTable(d.parameterNames(), rows, time.Now())); err != nil {
			return err
		}
	}
	fmt.Fprintf(d.Out, "\nSweep %s: %s\n", d.name, view.SweepSums(rows))
	unfinished, failed := d.tally()
	switch {
	case interrupted && (unfinished > 0 || d.next() != nil):
		fmt.Fprintf(d.Out, "Stopped; %s. The same command continues the sweep.\n", d.left(unfinished))
		return &kit.ExitError{Code: kit.ExitInterrupted}
	case failed == 0:
		return nil
	case d.next() != nil:
		fmt.Fprintln(d.Out, "No more jobs were created, because one has failed. The same command with --keep-going creates the rest.")
	}
	fmt.Fprintln(d.Out, "To try failed jobs again, delete them and give the same command.")
	return &kit.ExitError{Code: kit.ExitFailed}
}

// left returns, as text, how many jobs continue and how many were not created if the command is interrupted.
func (d *driver) left(unfinished int) string {
	missing := 0
	for _, m := range d.members {
		if m.job == nil && !m.deleted {
			missing++
		}
	}
	text := "no job runs"
	if unfinished > 0 {
		text = view.Count(unfinished, "job") + " continue"
		if unfinished == 1 {
			text += "s"
		}
	}
	if missing > 0 {
		text += fmt.Sprintf(", and %d were not created", missing)
	}
	return text
}

// printCreated prints the jobs after --detach. It returns the error of notCreated.
func (d *driver) printCreated() error {
	var jobs []*kit.Job
	for _, m := range d.members {
		if m.job != nil {
			jobs = append(jobs, m.job)
		}
	}
	switch d.options.output {
	case kit.Name:
		d.PrintNames(jobs...)
	case kit.JSON, kit.YAML:
		if err := kit.PrintJobs(d.Out, d.options.output, jobs, false); err != nil {
			return err
		}
	default:
		fmt.Fprintf(d.Out, "Sweep %s has %s in namespace %s. Its results: %s\n", d.name, view.Count(len(jobs), "job"), d.namespace(), d.Again(d.cluster, d.namespace(), "sweep "+d.name))
	}
	return d.notCreated()
}

// maxNamed is the maximum number of missing jobs that an error names.
const maxNamed = 10

// notCreated returns an error that names the jobs that were not created after a failure; nil if there are none.
func (d *driver) notCreated() error {
	var missing []string
	for _, m := range d.members {
		if m.job == nil && !m.deleted {
			missing = append(missing, fmt.Sprintf("%s (%s)", observed.Ref(d.kind, m.object.GetName()), m.settings))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	names := strings.Join(missing[:min(len(missing), maxNamed)], ", ")
	if more := len(missing) - maxNamed; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("sweep %s lacks %s, because a job has failed: %s\nThe same command with --keep-going creates the rest. "+
		"To try failed jobs again, delete them and give the same command", d.name, view.Count(len(missing), "job"), names)
}

// show prints the jobs of a sweep that was started earlier.
func show(ctx context.Context, p *kit.Program, o *options, name string) error {
	if err := kit.CheckLabels(selector(name)); err != nil {
		return fmt.Errorf("%q is not the name of a sweep: %w", name, err)
	}
	c, jobs, err := p.Choose(ctx, &kit.Choice{Labels: selector(name)}, nil)
	switch {
	case err != nil:
		return err
	case len(jobs) == 0:
		return fmt.Errorf("there is no sweep %q; %s lists the sweeps", name, p.Again(c, c.Namespace, "sweep"))
	case o.output == kit.Name:
		p.PrintNames(jobs...)
		return nil
	case o.output != "":
		return kit.PrintJobs(p.Out, o.output, jobs, false)
	}
	values := make([]map[string]string, len(jobs))
	all := map[string]bool{}
	for i, j := range jobs {
		// An annotation that cannot be read was not written by this program. The columns of its job stay empty.
		_ = json.Unmarshal([]byte(j.Raw.GetAnnotations()[batch.AnnotationParameters]), &values[i])
		for parameter := range values[i] {
			all[parameter] = true
		}
	}
	parameters := slices.Sorted(maps.Keys(all))
	var rows []view.SweepRow
	for i, j := range jobs {
		r := view.SweepRow{Job: kit.View(j)}
		for _, parameter := range parameters {
			r.Values = append(r.Values, values[i][parameter])
		}
		rows = append(rows, r)
	}
	view.SortSweep(rows)
	if err := p.PrintTable(view.SweepTable(parameters, rows, time.Now())); err != nil {
		return err
	}
	fmt.Fprintf(p.Out, "\nSweep %s: %s\n", name, view.SweepSums(rows))
	return nil
}

// list prints the sweeps of the namespace.
func list(ctx context.Context, p *kit.Program) error {
	c, err := p.Connect()
	if err != nil {
		return err
	}
	jobs, hidden, err := c.List(ctx, kinds.All, c.Namespace, batch.LabelSweep)
	if err != nil {
		return err
	}
	for _, err := range hidden {
		fmt.Fprintf(p.ErrOut, "Not shown: %v\n", err)
	}
	if len(jobs) == 0 {
		fmt.Fprintf(p.ErrOut, "No sweeps in namespace %q.\n", c.Namespace)
		return nil
	}
	sweeps := map[string][]*kit.Job{}
	for _, j := range jobs {
		name := j.GetLabels()[batch.LabelSweep]
		sweeps[name] = append(sweeps[name], j)
	}
	t := view.Table{Header: []string{"SWEEP", "JOBS", "UNFINISHED", "FAILED", "SUCCEEDED", "AGE"}}
	for _, name := range slices.Sorted(maps.Keys(sweeps)) {
		t.Rows = append(t.Rows, sweepRow(name, sweeps[name]))
	}
	return p.PrintTable(t)
}

func sweepRow(name string, jobs []*kit.Job) []view.Cell {
	unfinished, failed, succeeded := 0, 0, 0
	first := jobs[0].GetCreationTimestamp().Time
	for _, j := range jobs {
		switch finished, good := observed.Finished(j.Status()); {
		case !finished:
			unfinished++
		case good:
			succeeded++
		default:
			failed++
		}
		if at := j.GetCreationTimestamp().Time; at.Before(first) {
			first = at
		}
	}
	return view.Plainly(name, fmt.Sprint(len(jobs)), fmt.Sprint(unfinished), fmt.Sprint(failed), fmt.Sprint(succeeded), view.Age(first, time.Now()))
}
