package view

import (
	"net/url"
	"strings"
	"time"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/archive"
)

// HistoryPath is the path of the list of archived jobs, and UsagePath the path of the usage page.
const (
	HistoryPath = "/history"
	UsagePath   = "/history/usage"
)

// HistorySize is the number of jobs on one page of the archive's list.
const HistorySize = 100

// HistoryFilter selects archived jobs. The URL of the list contains it. An empty field does not restrict the selection.
type HistoryFilter struct {
	Text, Namespace, Queue, User, Outcome string
	// From selects jobs that had not ended or been deleted before this time, and To selects jobs that were created
	// before this time. Both have the format of the URL: days in UTC such as 2026-01-31, which include the whole day,
	// or times in RFC 3339.
	From, To string
	// Gone selects jobs that no longer exist; false selects all jobs.
	Gone bool
	// After is the cursor after which the page begins.
	After string
}

// ParseHistoryFilter reads a filter from the values of a URL. Query checks From, To and After.
func ParseHistoryFilter(v url.Values) HistoryFilter {
	get := func(key string) string { return strings.TrimSpace(v.Get(key)) }
	return HistoryFilter{Text: get("q"), Namespace: get("ns"), Queue: get("queue"), User: get("user"), Outcome: get("outcome"), From: get("from"), To: get("to"),
		Gone: get("gone") == "1", After: get("after")}
}

func (f HistoryFilter) values() url.Values {
	v := url.Values{}
	for key, value := range map[string]string{"q": f.Text, "ns": f.Namespace, "queue": f.Queue, "user": f.User, "outcome": f.Outcome, "from": f.From, "to": f.To, "after": f.After} {
		if value != "" {
			v.Set(key, value)
		}
	}
	if f.Gone {
		v.Set("gone", "1")
	}
	return v
}

// Href returns the path of the list with this filter.
func (f HistoryFilter) Href() string { return pathWith(HistoryPath, f.values()) }

func pathWith(path string, v url.Values) string {
	if len(v) == 0 {
		return path
	}
	return path + "?" + v.Encode()
}

// Narrow reports whether the filter can hide jobs, regardless of the page.
func (f HistoryFilter) Narrow() bool {
	f.After = ""
	return len(f.values()) > 0
}

// Query returns the query for the filter's page. Query reads From, To and After in this order, and stops at the first
// invalid value. problem tells the user about this value; empty if all values are valid.
func (f HistoryFilter) Query() (q archive.JobQuery, problem string) {
	q = archive.JobQuery{Text: f.Text, Namespace: f.Namespace, Queue: f.Queue, User: f.User, Outcome: f.Outcome, Gone: f.Gone, Limit: HistorySize}
	if q.From, problem = timeOf(f.From, false); problem != "" {
		return q, problem
	}
	if q.To, problem = timeOf(f.To, true); problem != "" {
		return q, problem
	}
	var err error
	if q.After, err = archive.ParseCursor(f.After); err != nil {
		return q, "The address names no place in the list, so the newest jobs are shown."
	}
	return q, ""
}

// timeOf parses a day in UTC or a time from a URL; an empty text is the zero time. If end is true, a day means its end,
// which is the start of the next day. problem tells the user that the text is invalid.
func timeOf(text string, end bool) (at time.Time, problem string) {
	if text == "" {
		return time.Time{}, ""
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		if end {
			day = day.AddDate(0, 0, 1)
		}
		return day, ""
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, "A time cannot be read: write it like 2026-01-31 or 2026-01-31T08:00:00Z."
	}
	return at.UTC(), ""
}

// HistoryRow is the row of a job in the archive's list. Of the fields of JobRow, it lacks Ref, Running, Done, Share,
// Labels, Ran and Deleting.
type HistoryRow struct {
	JobRow
	// Gone is when the recorder noticed that the job was deleted; zero while the job exists.
	Gone time.Time
	// Took is the time from the creation of the job to its end or deletion; zero while it exists and has not ended.
	Took time.Duration
}

// Over returns when the job ended or was deleted; zero while it exists and has not ended.
func (r *HistoryRow) Over() time.Time {
	if r.Ended.IsZero() {
		return r.Gone
	}
	return r.Ended
}

// historyRowOf returns the row of an archived job. Its phase is the job's outcome.
func historyRowOf(j *archive.Job) HistoryRow {
	r := HistoryRow{Gone: j.Gone, JobRow: JobRow{UID: j.UID, Path: ArchivedPath(j.UID), Kind: j.Kind, Namespace: j.Namespace, Name: j.Name,
		Phase: j.Outcome(), Tone: toneOf(j.Outcome()), Why: j.Why, Total: j.Replicas, Restarts: j.Restarts, Queue: j.Queue, User: j.User, Created: j.Created, Ended: j.Ended}}
	if r.Phase == archive.Deleted {
		r.Tone, r.Why = Quiet, deletedWhy(j)
	}
	if over := r.Over(); !over.IsZero() {
		r.Took = max(0, over.Sub(r.Created))
	}
	return r
}

// deletedWhy explains the outcome of a job that was deleted before it finished.
func deletedWhy(j *archive.Job) string {
	why := "The job was deleted before it had ended"
	if j.Phase != "" {
		why += ", when it was " + j.Phase
	}
	return why + "."
}

// ArchivedPath returns the path of the page of an archived job.
func ArchivedPath(uid string) string { return HistoryPath + "/" + url.PathEscape(uid) }

// HistoryPage is the list of archived jobs.
type HistoryPage struct {
	Tabs   []Link
	Filter HistoryFilter
	// About describes the contents of the list.
	About    string
	Outcomes []string
	Rows     []HistoryRow
	// First is the path of the first page; empty on that page. Next is the path of the next page; empty on the last
	// page.
	First, Next string
	// Problem tells the user that a value of the filter is invalid; empty if all values are valid.
	Problem string
}

// outcomes are the outcomes that the filter offers.
var outcomes = []string{string(batch.JobSucceeded), string(batch.JobFailed), archive.Deleted, string(batch.JobRunning), string(batch.JobPending), string(batch.JobPaused)}

// History returns the page of a filter. list is the archive's answer to f.Query, which also returned problem.
func History(f HistoryFilter, list *archive.JobList, problem string) HistoryPage {
	p := HistoryPage{Tabs: historyTabs(HistoryPath), Filter: f, Problem: problem, Outcomes: outcomes, About: "All archived jobs, newest first, including those that still exist."}
	if f.Gone {
		p.About = "Jobs that no longer exist, newest first."
	}
	for _, j := range list.Jobs {
		p.Rows = append(p.Rows, historyRowOf(j))
	}
	other := f
	if list.Next != "" {
		other.After = list.Next
		p.Next = other.Href()
	}
	if f.After != "" {
		other.After = ""
		p.First = other.Href()
	}
	return p
}

// historyTabs returns the links between the pages of the archive.
func historyTabs(current string) []Link {
	return []Link{{"Jobs", HistoryPath, current == HistoryPath}, {"GPU-hours", UsagePath, current == UsagePath}}
}

// Links returns links to archived jobs, each with its creation time and outcome. tail is appended to the path of each.
func Links(jobs []*archive.Job, tail string) []Link {
	var all []Link
	for _, j := range jobs {
		all = append(all, Link{Text: strings.ToLower(j.Kind) + "/" + j.Name + ", created " + j.Created.UTC().Format("2006-01-02 15:04:05") + " UTC: " + j.Outcome(), Href: ArchivedPath(j.UID) + tail})
	}
	return all
}
