package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/observed"
)

// Live is the input for the live view of one job.
type Live struct {
	Job
	Ages Ages
	// Notice is a problem with watching the job, such as a lost connection; empty if there is none.
	Notice string
}

// Frame renders jobs one below the other, in at most height lines of at most width characters. If the replicas of a job
// do not all fit, the frame counts them by role and lists the most urgent ones. If the jobs do not all fit, each takes
// one line, the most urgent jobs first.
func Frame(jobs []Live, now time.Time, st Style, width, height int) []string {
	heads := make([][]string, len(jobs))
	left := height - (len(jobs) - 1) // the space without all heads and the empty lines between them
	for i := range jobs {
		heads[i] = jobs[i].head(now, st, width)
		left -= len(heads[i])
	}
	if len(jobs) > 1 && left < 0 {
		return overview(jobs, now, st, width, height)
	}
	var lines []string
	for i := range jobs {
		if i > 0 {
			lines = append(lines, "")
		}
		// Later jobs get the lines that earlier jobs do not need.
		share := left / (len(jobs) - i)
		drawn := jobs[i].lines(heads[i], now, st, width, len(heads[i])+share)
		left -= len(drawn) - len(heads[i])
		lines = append(lines, drawn...)
	}
	return lines
}

// lines renders a job, beginning with its head, in at most height lines.
func (j *Live) lines(head []string, now time.Time, st Style, width, height int) []string {
	all := listed(j.Status)
	want := int(observed.Total(j.Status))
	if len(all) == 0 {
		return clip(head, height)
	}
	if want == len(all) && want < height {
		if table := j.table(all, now).Lines(st, "", width); len(head)+1+len(table) <= height {
			return append(append(head, ""), table...)
		}
	}
	lines := append(append(slices.Clone(head), ""), roleSums(j.Status).Lines(st, "", width)...)
	if len(lines) > height {
		return clip(head, height)
	}
	// This leaves room for an empty line, the header and the line that counts the remaining replicas.
	room := height - len(lines) - 3
	if room < 1 {
		return lines
	}
	urgent := byUrgency(all)
	urgent = urgent[:min(room, len(urgent))]
	table, shown := firstOf(j.table(urgent, now).blocks(st, "", width), room+1)
	lines = append(append(lines, ""), table...)
	return append(lines, andMore(want-shown, "", st, width)...)
}

// firstOf returns the header and as many rows as fit into room lines, and the number of these rows.
func firstOf(blocks [][]string, room int) (lines []string, shown int) {
	for i, block := range blocks {
		if len(lines)+len(block) > room {
			break
		}
		lines = append(lines, block...)
		shown = i
	}
	return lines, shown
}

func andMore(n int, which string, st Style, width int) []string {
	if n <= 0 {
		return nil
	}
	return []string{st.Paint(Dim, cut(fmt.Sprintf("… and %d more%s", n, which), width))}
}

// phaseUrgency lists the phases of jobs, the most urgent first.
var phaseUrgency = []batch.JobPhase{
	batch.JobFailed, batch.JobUnknown, "", batch.JobPending, batch.JobResuming, batch.JobPaused, batch.JobRunning, batch.JobSucceeded,
}

// overview renders many jobs, one per line.
func overview(jobs []Live, now time.Time, st Style, width, height int) []string {
	sorted := slices.Clone(jobs)
	slices.SortStableFunc(sorted, func(a, b Live) int {
		return cmp.Compare(slices.Index(phaseUrgency, a.Status.Phase), slices.Index(phaseUrgency, b.Status.Phase))
	})
	lines := []string{st.Paint(Bold, cut(fmt.Sprintf("%d jobs: %s", len(jobs), phaseSums(sorted)), width))}
	t := Table{Header: []string{"JOB", "PHASE", "READY", "RESTARTS", "WAITED", "RAN", "WHY"}, Text: true}
	for i := range sorted {
		t.Rows = append(t.Rows, sorted[i].overviewRow(now))
	}
	// This leaves room for an empty line and the line that counts the remaining jobs.
	table, shown := firstOf(t.blocks(st, "", width), height-len(lines)-2)
	if shown == 0 {
		return clip(lines, height)
	}
	lines = append(append(lines, ""), table...)
	return append(lines, andMore(len(sorted)-shown, ": "+phaseSums(sorted[shown:]), st, width)...)
}

func (j *Live) overviewRow(now time.Time) []Cell {
	phase := Cell{Text: string(j.Status.Phase), Colour: phaseColour(string(j.Status.Phase))}
	if phase.Text == "" {
		phase = Cell{Text: "New", Colour: Wait}
	}
	why := Cell{Text: j.Notice, Colour: Wait}
	if finished, succeeded := observed.Finished(j.Status); why.Text == "" && (!finished || !succeeded) {
		why = Cell{Text: observed.Explain(j.Status)}
	}
	why.Text = observed.OneLine(why.Text)
	waited, ran := j.times(now)
	return []Cell{{Text: j.Ref}, phase, {Text: ready(j.Status)}, {Text: fmt.Sprint(j.Status.Restarts)}, {Text: orDash(waited)}, {Text: orDash(ran)}, why}
}

// phaseSums returns the numbers of jobs by phase, as text. The jobs must be sorted by phase.
func phaseSums(jobs []Live) string {
	var parts []string
	for i := 0; i < len(jobs); {
		phase, n := jobs[i].Status.Phase, 0
		for ; i < len(jobs) && jobs[i].Status.Phase == phase; i++ {
			n++
		}
		parts = append(parts, fmt.Sprintf("%d %s", n, cmp.Or(string(phase), "new")))
	}
	return strings.Join(parts, ", ")
}

func (j *Live) table(rows []replica, now time.Time) Table {
	t := Table{Header: replicaHeader, Text: true}
	decides := observed.Decides(j.Normal)
	for i := range rows {
		row := rows[i].row(j.Ages, now)
		if last := &row[len(row)-1]; last.Text == "" && rows[i].short() == decides {
			*last = Cell{Text: "decides", Colour: Dim}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// head renders the job in one line if it fits, and below this line the reason for the job's phase and the notice.
func (j *Live) head(now time.Time, st Style, width int) []string {
	s := j.Status
	facts := []Cell{{Text: j.Ref, Colour: Bold}}
	if s.Phase == "" {
		facts = append(facts, Cell{Text: "waiting for the operator", Colour: Wait})
	} else {
		facts = append(facts, Cell{Text: string(s.Phase), Colour: phaseColour(string(s.Phase))},
			Cell{Text: strings.TrimSuffix(fmt.Sprintf("%s running %s", ready(s), bounds(j.Normal)), " ")})
	}
	if s.Restarts > 0 {
		facts = append(facts, Cell{Text: j.restarts()})
	}
	waited, ran := j.times(now)
	if waited != "" {
		facts = append(facts, Cell{Text: "waited " + waited})
	}
	if ran != "" {
		facts = append(facts, Cell{Text: "ran " + ran})
	}
	if left := j.timeLeft(now); left != "" {
		facts = append(facts, Cell{Text: "deadline " + left})
	}
	lines := flow(facts, st, width)
	if why := observed.Explain(s); why != "" {
		lines = append(lines, wrap(Escape(why), width)...)
	}
	if j.Notice != "" {
		for _, l := range wrap(Escape(observed.OneLine(j.Notice)), width) {
			lines = append(lines, st.Paint(Wait, l))
		}
	}
	return lines
}

// flow renders facts two spaces apart, in as many lines as they need.
func flow(facts []Cell, st Style, width int) []string {
	var lines []string
	line, used := "", 0
	for _, fact := range facts {
		for k, part := range wrap(Escape(fact.Text), max(1, width-2)) {
			n := utf8.RuneCountInString(part)
			if used > 0 && (k > 0 || used+2+n > width) {
				lines = append(lines, line)
				line, used = "", 0
			}
			if len(lines) > 0 || used > 0 {
				line, used = line+"  ", used+2
			}
			line, used = line+st.Paint(fact.Colour, part), used+n
		}
	}
	return append(lines, line)
}

func clip(lines []string, n int) []string {
	return lines[:max(0, min(n, len(lines)))]
}

// Count returns a number with a noun, such as "1 job" or "2 jobs".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Summary renders a finished job: its result, its duration, its restarts and the reason for its result.
func Summary(j Job, st Style, width int) []string {
	_, succeeded := observed.Finished(j.Status)
	word := Cell{Text: "Failed", Colour: Bad}
	if succeeded {
		word = Cell{Text: "Succeeded", Colour: Good}
	}
	took := ""
	if waited, ran := j.times(time.Time{}); waited != "" {
		took = fmt.Sprintf(" in %s (waited %s, ran %s)", duration.HumanDuration(j.lasted(time.Time{})), waited, cmp.Or(ran, "0s"))
	}
	lines := []string{fmt.Sprintf("%s %s%s, %s", j.Ref, st.Paint(word.Colour, word.Text), took, j.restarts())}
	return append(lines, Wrap(strings.TrimSpace(observed.Explain(j.Status)), "  ", width)...)
}
