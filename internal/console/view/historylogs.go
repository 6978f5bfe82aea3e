package view

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/kinds"
)

// ArchivedLogs selects archived logs of a job.
type ArchivedLogs struct {
	// Replica is the selected replica; empty for all replicas.
	Replica string
	// Attempt is the number of the selected attempt, counted from 1; 0 for all attempts.
	Attempt int
	// Pod is the UID of the selected attempt if several attempts may have its number; empty selects all of them.
	Pod string
}

// has reports whether the attempt of a log is selected. It does not compare the replica, because the archive returns
// only the logs of the selected replica.
func (s *ArchivedLogs) has(l *archive.LogText) bool {
	return (s.Attempt == 0 || s.Attempt == archive.Ordinal(l.Attempt)) && (s.Pod == "" || s.Pod == l.UID)
}

// Encode returns the selection as URL parameters.
func (s *ArchivedLogs) Encode() string {
	v := url.Values{"replica": {s.Replica}, "attempt": {strconv.Itoa(s.Attempt)}}
	if s.Pod != "" {
		v.Set("pod", s.Pod)
	}
	return v.Encode()
}

// HistoryLogsPage is the page of the archived logs of a job.
type HistoryLogsPage struct {
	JobRow
	LogView
	ArchivedLogs
	// Replicas are the replicas, and Attempts the numbers of the attempts, that the user can select.
	Replicas []string
	Attempts []int
	// Live is the path of the logs of the current pods; empty after the deletion of the job.
	Live string
}

// HistoryLogs returns the page of the archived logs of a job. list holds the logs of the selected replica, or of all
// replicas. HistoryLogs ignores s.Pod if the pod belongs to another replica or to an attempt with another number. The
// caller sets Stream, Download and Times.
func HistoryLogs(j *archive.JobDetails, list *archive.LogList, s ArchivedLogs) *HistoryLogsPage {
	row, replica := historyRowOf(&j.Job), s.Replica
	p := &HistoryLogsPage{JobRow: row.JobRow, ArchivedLogs: s}
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
		name := fmt.Sprintf("%s-%d", a.Role, a.Rank)
		if !slices.Contains(p.Replicas, name) {
			p.Replicas = append(p.Replicas, name)
		}
		if a.UID == s.Pod && (name != replica || archive.Ordinal(a.Number) != s.Attempt) {
			p.Pod = "" // the form sends the pod along when another replica or attempt is selected
		}
		if n := archive.Ordinal(a.Number); !slices.Contains(p.Attempts, n) {
			p.Attempts = append(p.Attempts, n)
		}
	}
	slices.Sort(p.Attempts)
	lines := HistoryLines(list, &p.ArchivedLogs)
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
	// Source is the name of the log, and Text is the whole line without its timestamp, or a remark. At is the time of
	// the line or, if that is unknown, of the last line before it that has a time; zero if there is none. A remark has
	// the time of the line that follows it.
	Source, Text string
	At           time.Time
	// Line is the line in the form that pages show. Its Replica is empty if all lines come from a single log.
	Line LogLine
}

// HistoryLines returns the selected lines of logs in the order of their timestamps. Remarks mark logs whose beginning
// was cut off, and the beginnings of logs that have the same name.
func HistoryLines(list *archive.LogList, selected *ArchivedLogs) []HistoryLine {
	containers, order, sources := map[string]map[string]bool{}, map[string]int{}, 0
	same := map[string]int{}
	for i := range list.Logs {
		name := list.Logs[i].Replica()
		if containers[name] == nil {
			containers[name], order[name] = map[string]bool{}, len(order)
		}
		containers[name][list.Logs[i].Container] = true
		if selected.has(&list.Logs[i]) {
			same[list.Logs[i].Source(true)]++
		}
	}
	var all []HistoryLine
	for i := range list.Logs {
		l := &list.Logs[i]
		if l.Text == "" || !selected.has(l) {
			continue
		}
		name := l.Replica()
		var remarks []string
		if same[l.Source(true)] > 1 {
			remarks = append(remarks, fmt.Sprintf("attempt %d, created at %s", archive.Ordinal(l.Attempt), l.Created.UTC().Format(time.RFC3339)))
		}
		if l.Cut {
			remarks = append(remarks, "the archive has only the end of this log")
		}
		all = append(all, linesOf(l, l.Source(len(containers[name]) > 1), ColourOf(order[name]), remarks)...)
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

// linesOf returns the remarks about one log and its lines. name is the name of the log. A line without a timestamp gets
// the timestamp of the previous line. The remarks come before the first line with a timestamp or, if there is none,
// before all lines.
func linesOf(l *archive.LogText, name string, colour int, remarks []string) []HistoryLine {
	source := LogSource{Replica: name, Colour: colour}
	var all []HistoryLine
	var last time.Time
	remarked := func(at time.Time) (lines []HistoryLine) {
		for _, text := range remarks {
			remark := source.Remark(text)
			lines = append(lines, HistoryLine{name, remark.Text, at, remark})
		}
		remarks = nil
		return lines
	}
	for text := range strings.SplitSeq(strings.TrimSuffix(l.Text, "\n"), "\n") {
		stamp, rest, _ := strings.Cut(text, " ")
		if at, err := time.Parse(time.RFC3339Nano, stamp); err == nil {
			all = append(all, remarked(at)...)
			text, last = rest, at
		}
		all = append(all, HistoryLine{name, text, last, source.Line(last, text)})
	}
	return append(remarked(last), all...) // remarks are left if no line has a timestamp
}
