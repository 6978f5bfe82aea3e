package view

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/observed"
)

// ShownLogs is the largest number of replicas whose logs a page shows.
const ShownLogs = 100

// LogFilter selects replicas for the page of a job's logs.
type LogFilter struct {
	// Role and Ranks select replicas by role and rank; empty selects all. Ranks is a list such as 0-3,7.
	Role, Ranks string
	// State is logFailed or logRunning; empty for any state. Times is true if the page shows the timestamps of lines.
	State string
	Times bool
	// Problem explains why the filter is invalid; empty if it is valid. An invalid filter selects nothing.
	Problem string
	ranks   [][2]int
}

// States that a LogFilter selects.
const (
	logFailed  = "failed"
	logRunning = "running"
)

// LogFilterOf reads a filter for a job's replicas from URL parameters. The parameter replica is the name of one
// replica, as ROLE-RANK; it replaces the parameters role and ranks. If the job has a single role and the filter has
// Ranks, LogFilterOf sets Role. A role that the job does not have is a Problem.
func LogFilterOf(j *observed.Job, v url.Values) LogFilter {
	f := parseLogFilter(v)
	roles, known := []string{}, f.Role == ""
	n := j.Kind.Convert(j.Object)
	for i := range n.Roles {
		roles = append(roles, n.Roles[i].Type)
		known = known || n.Roles[i].Type == f.Role
	}
	switch {
	case f.Problem != "":
	case !known:
		f.Problem = fmt.Sprintf("The job has no role %q; it has: %s.", f.Role, strings.Join(roles, ", "))
	case len(roles) == 1 && f.Ranks != "":
		f.Role = roles[0]
	}
	return f
}

func parseLogFilter(v url.Values) LogFilter {
	f := LogFilter{Role: v.Get("role"), Ranks: strings.ReplaceAll(v.Get("ranks"), " ", ""), Times: v.Get("times") == "1"}
	if state := v.Get("state"); state == logFailed || state == logRunning {
		f.State = state
	}
	if name := v.Get("replica"); name != "" {
		i := strings.LastIndexByte(name, '-')
		if i < 0 {
			f.Problem = fmt.Sprintf("%q names no replica: a name such as worker-0 has a role and a rank.", name)
			return f
		}
		f.Role, f.Ranks = name[:i], name[i+1:]
	}
	for part := range strings.SplitSeq(f.Ranks, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.ParseUint(from, 10, 31)
		last, err2 := strconv.ParseUint(to, 10, 31)
		switch {
		case f.Ranks == "":
		case err1 != nil || err2 != nil || last < first:
			f.Problem = fmt.Sprintf("%q is no list of ranks: write ranks and ranges such as 0-3,7.", f.Ranks)
			return f
		default:
			f.ranks = append(f.ranks, [2]int{int(first), int(last)}) //nolint:gosec // they have 31 bits
		}
	}
	return f
}

// Encode returns the filter as URL parameters.
func (f *LogFilter) Encode() string {
	v := url.Values{}
	for name, value := range map[string]string{"role": f.Role, "ranks": f.Ranks, "state": f.State} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if f.Times {
		v.Set("times", "1")
	}
	return v.Encode()
}

// One reports whether the filter selects a single replica by its role and rank.
func (f *LogFilter) One() bool {
	return f.Role != "" && len(f.ranks) == 1 && f.ranks[0][0] == f.ranks[0][1]
}

// Selects reports whether the filter selects a replica. failed and running are the states of the replica.
func (f *LogFilter) Selects(role string, rank int, failed, running bool) bool {
	switch {
	case f.Problem != "" || f.Role != "" && f.Role != role:
		return false
	case f.State == logFailed && !failed || f.State == logRunning && !running:
		return false
	}
	return f.Ranks == "" || slices.ContainsFunc(f.ranks, func(r [2]int) bool { return r[0] <= rank && rank <= r[1] })
}

// LogsPage is the page of the logs of a job.
type LogsPage struct {
	JobRow
	LogView
	Filter LogFilter
	// Roles are the roles of the job; nil if it has only one. Many is true if the job has several replicas.
	Roles []string
	Many  bool
	// Note describes the replicas that are not shown; empty if all are shown.
	Note string
	// Attempts are links to the logs of the attempts of the selected replica, newest first, if the filter selects only
	// one; a link without a path is an attempt whose log is not available. Attempts is nil if the current attempt is
	// the only one. Earlier explains why logs of earlier attempts are not available; empty if they are, or if there are
	// none.
	Attempts []Link
	Earlier  string
	// Archive is true if the console has an archive.
	Archive bool
	// Kept is the path of the archived logs of all attempts of the job; empty if there are no earlier attempts, or if
	// the archive does not have the job.
	Kept   string
	Hidden []Hidden
}

// Logs returns the page of a job's logs without lines, notes and attempts. Describe and AddAttempts complete it.
func Logs(in *JobInput, f LogFilter) *LogsPage {
	j := in.Job
	p := &LogsPage{JobRow: RowOf(j), Filter: f}
	p.Times = f.Times
	p.Stream, p.Download = p.Path+"/logs/stream?"+f.Encode(), p.Path+"/logs/download?"+f.Encode()
	p.Command = fmt.Sprintf("t9k logs -f -n %s %s", j.GetNamespace(), j.Ref())
	if f.Role != "" {
		p.Command += " --role " + f.Role
	}
	if f.Ranks != "" {
		p.Command += " --rank " + f.Ranks
	}
	n, replicas := j.Kind.Convert(j.Object), 0
	for i := range n.Roles {
		replicas += n.Roles[i].Replicas
		if len(n.Roles) > 1 {
			p.Roles = append(p.Roles, n.Roles[i].Type)
		}
	}
	if f.Problem != "" {
		p.Stream = ""
	}
	p.Many = replicas > 1
	return p
}

// Several reports whether the page can show the lines of several replicas.
func (p *LogsPage) Several() bool { return p.Many && !p.Filter.One() }

// Describe sets State and Note; it does nothing if the filter is invalid. all is the number of selected replicas with
// output, and shown is the number of replicas whose last lines are on the page.
func (p *LogsPage) Describe(shown, all int) {
	if p.Filter.Problem != "" {
		return
	}
	switch all {
	case 0:
		p.State = "There is no pod that has started, so there is no output."
	case 1:
		p.State = "The last lines."
	default:
		p.State = fmt.Sprintf("The last lines of %d of %d replicas.", shown, all)
	}
	p.Note = LogNote(min(all, ShownLogs), all, 0)
}

// LogNote returns a note about selected replicas that are not shown; empty if all are shown. shown and all are numbers
// of selected replicas, and failed is the number of failed replicas that are not shown.
func LogNote(shown, all, failed int) string {
	if shown == all {
		return ""
	}
	text := fmt.Sprintf("%d of %d replicas are shown: failed ones first, then by role and rank.", shown, all)
	switch failed {
	case 0:
	case 1:
		text += " One that has failed is not among them."
	default:
		text += fmt.Sprintf(" %d that have failed are not among them.", failed)
	}
	return text + " Select others by rank or state."
}

// AddArchived adds the archived attempts whose pods are not in in.Pods.
func (in *JobInput) AddArchived(all []archive.AttemptDetails) {
	seen := map[string]bool{}
	for _, p := range in.Pods {
		seen[string(p.UID)] = true
	}
	for i := range all {
		if !seen[all[i].UID] {
			in.Attempts = append(in.Attempts, &all[i].Attempt)
		}
	}
}

// maxAttempts is the largest number of attempts of a replica that the page of logs lists.
const maxAttempts = 12

// AddAttempts sets Kept and, if the filter selects a single replica, Attempts and Earlier. present is the UID of the
// current pod of this replica; empty if there is none or if it has not started. archived is the path of the job in the
// archive; empty if the archive does not have the job.
func (p *LogsPage) AddAttempts(in *JobInput, present, archived string) {
	if len(in.Attempts) > 0 && archived != "" {
		p.Kept = archived + "/logs"
	}
	for _, n := range in.attemptsOf() {
		if n > 0 && archived != "" {
			p.Kept = archived + "/logs"
		}
	}
	if !p.Filter.One() {
		return
	}
	lanes, _ := in.lanesOf()
	for _, l := range lanes {
		if l.role == p.Filter.Role && l.rank == p.Filter.ranks[0][0] {
			p.listAttempts(&l, present, archived, in.Now)
		}
	}
}

// listAttempts adds links to the newest attempts of a replica, newest first, unless the current attempt is the only
// one. It sets Earlier if the archive does not have the other attempts.
func (p *LogsPage) listAttempts(l *lane, present, archived string, now time.Time) {
	count := map[int]int{}
	for i := range l.attempts {
		count[l.attempts[i].number]++
	}
	for i := range slices.Backward(l.attempts) {
		a := &l.attempts[i]
		link := Link{Text: attemptText(a, now), Current: present != "" && a.uid == present}
		switch {
		case link.Current:
			link.Href = p.Path + "/logs?" + p.Filter.Encode()
		case archived != "":
			pod := ""
			if count[a.number] > 1 {
				pod = a.uid
			}
			link.Href = logsOfAttempt(archived, l.name(), a.number, pod)
		default:
			p.Earlier = "The output of earlier attempts went with their pods."
		}
		if len(p.Attempts) < maxAttempts {
			p.Attempts = append(p.Attempts, link)
		}
	}
	if len(l.attempts) == 1 && p.Attempts[0].Current {
		p.Attempts = nil
	}
}

// attemptText describes an attempt and its time.
func attemptText(a *attempt, now time.Time) string {
	text := fmt.Sprintf("attempt %d", archive.Ordinal(a.number))
	switch {
	case a.end == "" && a.started.IsZero():
		return text
	case a.end == "":
		return text + ", since " + clock(a.started, now)
	case a.guessed || a.started.IsZero():
		return fmt.Sprintf("%s: %s, until %s", text, a.detail, clock(a.over, now))
	}
	return fmt.Sprintf("%s: %s, %s–%s", text, a.detail, clock(a.started, now), clock(a.over, a.started))
}

// clock returns the time of day of t in UTC, with the date unless t and other are on the same day.
func clock(t, other time.Time) string {
	t, other = t.UTC(), other.UTC()
	if t.YearDay() == other.YearDay() && t.Year() == other.Year() {
		return t.Format("15:04:05")
	}
	return t.Format("Jan 2 15:04:05")
}
