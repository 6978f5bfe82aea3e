package view

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Live is what the live picture of one job is drawn from.
type Live struct {
	Job
	Ages Ages
	// Notice tells of trouble in following the job, such as a lost connection; empty for none.
	Notice string
}

// Frame draws jobs, one below the other, in at most height lines of at most width characters. A job whose replicas do not
// all fit is summed up by role, and the replicas that need a look come first.
func Frame(jobs []Live, now time.Time, st Style, width, height int) []string {
	var lines []string
	for i := range jobs {
		if i > 0 && len(lines) < height {
			lines = append(lines, "")
		}
		// What earlier jobs did not need falls to the later ones.
		share := (height - len(lines)) / (len(jobs) - i)
		lines = append(lines, jobs[i].lines(now, st, width, share)...)
	}
	return lines
}

func (j *Live) lines(now time.Time, st Style, width, height int) []string {
	lines := j.head(now, st, width)
	all := listed(j.Status)
	want := int(total(j.Status))
	room := height - len(lines) - 2
	switch {
	case len(all) == 0 || room < 1:
		return clip(lines, height)
	case want == len(all) && want <= room:
		return append(append(lines, ""), j.table(all, now).Lines(st, "", width)...)
	}
	lines = append(append(lines, ""), roleSums(j.Status).Lines(st, "", width)...)
	// An empty line, the header and the line that tells what is left out.
	if room = height - len(lines) - 3; room < 1 {
		return clip(lines, height)
	}
	shown := byUrgency(all)
	shown = shown[:min(room, len(shown))]
	lines = append(append(lines, ""), j.table(shown, now).Lines(st, "", width)...)
	if more := want - len(shown); more > 0 {
		lines = append(lines, st.Paint(Dim, cut(fmt.Sprintf("… and %d more", more), width)))
	}
	return lines
}

func (j *Live) table(rows []replica, now time.Time) Table {
	t := Table{Header: replicaHeader}
	decides := master(j.Normal)
	for i := range rows {
		row := rows[i].row(j.Ages, now)
		if last := &row[len(row)-1]; last.Text == "" && rows[i].short() == decides {
			*last = Cell{Text: "decides", Colour: Dim}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// head is the job in one line, and below it why it is where it is.
func (j *Live) head(now time.Time, st Style, width int) []string {
	s := j.Status
	l := line{max: width}
	l.add(st, Cell{Text: j.Ref, Colour: Bold})
	phase := Cell{Text: "  " + string(s.Phase), Colour: phaseColour(string(s.Phase))}
	if s.Phase == "" {
		phase = Cell{Text: "  waiting for the operator", Colour: Wait}
	}
	l.add(st, phase)
	if s.Phase != "" {
		l.add(st, Cell{Text: fmt.Sprintf("  %s running", ready(s))})
		l.add(st, Cell{Text: strings.TrimSuffix(" "+bounds(j.Normal), " ")})
	}
	if s.BackoffCount > 0 {
		l.add(st, Cell{Text: "  " + j.restarts()})
	}
	if t := runTime(s, now); t != "" {
		if j.Normal != nil && j.Normal.Deadline != nil {
			t += " of " + duration.HumanDuration(*j.Normal.Deadline)
		}
		l.add(st, Cell{Text: "  " + t})
	}
	lines := []string{l.String()}
	if why := Explain(s); why != "" {
		lines = append(lines, cut(why, width))
	}
	if j.Notice != "" {
		lines = append(lines, st.Paint(Wait, cut(oneLine(j.Notice), width)))
	}
	return lines
}

func clip(lines []string, n int) []string {
	return lines[:max(0, min(n, len(lines)))]
}

// Count writes a number with its noun.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Summary is the last word on a job that has ended: its result, how long it took and why it ended.
func Summary(j Job, st Style) []string {
	_, succeeded := Finished(j.Status)
	word := Cell{Text: "Failed", Colour: Bad}
	if succeeded {
		word = Cell{Text: "Succeeded", Colour: Good}
	}
	took := ""
	if t := runTime(j.Status, time.Time{}); t != "" {
		took = " in " + t
	}
	first := fmt.Sprintf("%s %s%s, %s", j.Ref, st.Paint(word.Colour, word.Text), took, j.restarts())
	why := Explain(j.Status)
	if why == "" {
		return []string{first}
	}
	return []string{first, "  " + strings.TrimSpace(why)}
}
