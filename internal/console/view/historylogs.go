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

// HistoryLogsPage is the page of the archived logs of a job.
type HistoryLogsPage struct {
	JobRow
	LogView
	// Replicas are the replicas that the user can select. Replica is the selected one; empty for all replicas.
	Replicas []string
	Replica  string
	// Attempts are the numbers of the attempts that the user can select. Attempt is the selected one; 0 for all
	// attempts.
	Attempts []int
	Attempt  int
	// Live is the path of the logs of the current pods; empty after the deletion of the job.
	Live string
}

// HistoryLogs returns the page of the archived logs of a job. list holds the logs of the selected replica, or of all
// replicas.
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

// HistoryLine is a line of an archived log.
type HistoryLine struct {
	// Source is the name of the log, Text the whole line, and At its time; zero if the time is unknown.
	Source, Text string
	At           time.Time
	// Line is the line in the form that pages show.
	Line LogLine
}

// HistoryLines returns the lines of logs in the order of their timestamps. attempt selects one attempt, counted from 1;
// 0 selects all. A remark marks logs whose beginning was cut off.
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
	if sources == 1 { // with a single log, names before the lines are useless
		for i := range all {
			all[i].Line.Replica = ""
		}
	}
	slices.SortStableFunc(all, func(a, b HistoryLine) int { return a.At.Compare(b.At) })
	return all
}

// linesOf returns the lines of one log. A line without a timestamp gets the timestamp of the previous line.
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
