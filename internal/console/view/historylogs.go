package view

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/kinds"
)

// HistoryLogsPage is the page of the logs that the archive keeps of a job.
type HistoryLogsPage struct {
	JobRow
	LogView
	// Replicas are the replicas to choose from, and Replica is the chosen one; empty for all.
	Replicas []string
	Replica  string
	// Attempts are the numbers of attempts to choose from, and Attempt is the chosen one; 0 for all.
	Attempts []int
	Attempt  int
	// Live is the path of the logs of the present pods; empty once the job is gone.
	Live string
}

// HistoryLogs returns the page of the logs of a job, of which list has those of the chosen replica or of all.
func HistoryLogs(j *archive.JobDetails, list *archive.LogList, replica string, attempt int) *HistoryLogsPage {
	row := historyRowOf(&j.Job)
	p := &HistoryLogsPage{JobRow: row.JobRow, Replica: replica, Attempt: attempt}
	p.Command = fmt.Sprintf("t9k history logs -n %s %s --uid %s", j.Namespace, strings.ToLower(j.Kind)+"/"+j.Name, j.UID)
	if replica != "" {
		p.Command += " -r " + replica
	}
	if kind, err := kinds.ByName(j.Kind); err == nil && j.Gone.IsZero() {
		p.Live = JobPath(&kind, j.Namespace, j.Name) + "/logs"
		if replica != "" {
			p.Live += "?replica=" + url.QueryEscape(replica)
		}
	}
	for i := range j.Attempts {
		a := &j.Attempts[i]
		if name := fmt.Sprintf("%s-%d", a.Role, a.Rank); !slices.Contains(p.Replicas, name) {
			p.Replicas = append(p.Replicas, name)
		}
		if n := archive.Ordinal(a.Number); !slices.Contains(p.Attempts, n) {
			p.Attempts = append(p.Attempts, n)
		}
	}
	slices.Sort(p.Attempts)
	lines := HistoryLines(list, attempt)
	p.State = fmt.Sprintf("The last %d of %d lines.", min(len(lines), shownLines), len(lines))
	if len(lines) == 0 {
		p.State = "The archive has no such log. It keeps the end of a log if it could be read before the pod was gone, and the oldest logs go first."
	}
	for _, l := range lines[max(0, len(lines)-shownLines):] {
		p.Lines = append(p.Lines, l.Line)
	}
	return p
}

// shownLines is the largest number of lines of a page without the script.
const shownLines = 800

// HistoryLine is a line of a log of the archive.
type HistoryLine struct {
	// Source names the log, Text is the whole line, and At its time; zero if it is not known.
	Source, Text string
	At           time.Time
	// Line is the line as pages show it.
	Line LogLine
}

// HistoryLines returns the lines of logs in the order of their times, of one attempt, counted from 1, or, if it is 0, of
// all. Where a log began earlier, a line says so.
func HistoryLines(list *archive.LogList, attempt int) []HistoryLine {
	containers, order, sources := map[string]map[string]bool{}, map[string]int{}, 0
	for i := range list.Logs {
		name := list.Logs[i].Replica()
		if containers[name] == nil {
			containers[name], order[name] = map[string]bool{}, len(order)
		}
		containers[name][list.Logs[i].Container] = true
	}
	var all []HistoryLine
	for i := range list.Logs {
		l := &list.Logs[i]
		if l.Text == "" || attempt != 0 && attempt != archive.Ordinal(l.Attempt) {
			continue
		}
		name := l.Replica()
		all = append(all, linesOf(l, l.Source(len(containers[name]) > 1), ColourOf(order[name]))...)
		sources++
	}
	if sources == 1 { // its name before each line would say nothing
		for i := range all {
			all[i].Line.Replica = ""
		}
	}
	slices.SortStableFunc(all, func(a, b HistoryLine) int { return a.At.Compare(b.At) })
	return all
}

// linesOf returns the lines of one log. A line without a time has that of the line before.
func linesOf(l *archive.LogText, name string, colour int) []HistoryLine {
	source := LogSource{Replica: name, Colour: colour}
	var all []HistoryLine
	var last time.Time
	for text := range strings.SplitSeq(strings.TrimSuffix(l.Text, "\n"), "\n") {
		stamp, rest, _ := strings.Cut(text, " ")
		if at, err := time.Parse(time.RFC3339Nano, stamp); err == nil {
			text = rest
			if last.IsZero() && l.Cut {
				remark := source.Remark("the archive has the end of this log alone")
				all = append(all, HistoryLine{name, remark.Text, at, remark})
			}
			last = at
		}
		all = append(all, HistoryLine{name, text, last, source.Line(last, text)})
	}
	return all
}
