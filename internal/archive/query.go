package archive

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// JobQuery selects jobs. A field with its zero value does not restrict the selection.
type JobQuery struct {
	// Text is a part of the job's name, compared without regard to case. Name is the whole name.
	Text, Name, Namespace, Kind, Queue, User, Phase string
	// Outcome is a value that Job.Outcome returns.
	Outcome string
	// From selects jobs that had not ended or been deleted before this time. To selects jobs that were created before
	// this time.
	From, To time.Time
	// Gone selects jobs that no longer exist.
	Gone bool
	// Limit is the largest number of jobs. If it is zero, Store.Jobs returns all jobs, and Values omits the parameter,
	// so that the API uses its default.
	Limit int
	// After selects the jobs that follow a position in the list.
	After Cursor
}

// Values returns the query as URL parameters of the API.
func (q *JobQuery) Values() url.Values {
	v := url.Values{}
	for name, value := range map[string]string{"text": q.Text, "name": q.Name, "namespace": q.Namespace, "kind": q.Kind, "queue": q.Queue, "user": q.User,
		"phase": q.Phase, "outcome": q.Outcome, "from": rfc3339(q.From), "to": rfc3339(q.To), "after": q.After.String()} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if q.Gone {
		v.Set("gone", "true")
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return v
}

func rfc3339(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// Cursor is the position of a job in lists. Lists are ordered from the newest job to the oldest; jobs with equal
// creation times are ordered by descending UID. A list that continues after a cursor neither repeats nor skips a job
// when other jobs are added or removed. The zero value is the start of a list.
type Cursor struct {
	Created time.Time
	UID     string
}

// CursorOf returns the position of a job.
func CursorOf(j *Job) Cursor { return Cursor{j.Created, j.UID} }

// String returns the cursor as a URL parameter; empty for the start of a list.
func (c Cursor) String() string {
	if c.UID == "" {
		return ""
	}
	return strconv.FormatInt(c.Created.UnixMilli(), 10) + "." + c.UID
}

// ErrCursor means that a text is not a valid cursor.
var ErrCursor = errors.New("this is no place in a list")

// ParseCursor parses the result of String. It returns ErrCursor if the text is not a cursor.
func ParseCursor(text string) (Cursor, error) {
	if text == "" {
		return Cursor{}, nil
	}
	at, uid, _ := strings.Cut(text, ".")
	ms, err := strconv.ParseInt(at, 10, 64)
	if err != nil || uid == "" {
		return Cursor{}, ErrCursor
	}
	return Cursor{time.UnixMilli(ms).UTC(), uid}, nil
}

// UsageQuery selects sums of resource use: a time span, a key by which to group the sums, and an optional namespace.
type UsageQuery struct {
	Span
	By By
	// Extended omits cpu and memory.
	Extended bool
	// Namespace selects one namespace; empty selects all.
	Namespace string
}

// Values returns the query as URL parameters of the API.
func (q *UsageQuery) Values() url.Values {
	v := url.Values{"by": {string(q.By)}, "from": {rfc3339(q.From)}, "to": {rfc3339(q.To)}, "extended": {strconv.FormatBool(q.Extended)}}
	if q.Step > 0 {
		v.Set("step", q.Step.String())
	}
	if q.Namespace != "" {
		v.Set("namespace", q.Namespace)
	}
	return v
}

// Refusal is the reason why a request for records was refused, with its HTTP status code.
type Refusal struct {
	Status int
	Text   string
}

// Error implements error.
func (r *Refusal) Error() string { return r.Text }

// Refuse returns a Refusal with an HTTP status and a formatted text.
func Refuse(status int, format string, args ...any) *Refusal {
	return &Refusal{status, fmt.Sprintf(format, args...)}
}

// Deleted is the outcome of a job that was deleted before it finished.
const Deleted = "Deleted"

// Outcome returns Deleted for a job that was deleted before it finished. For any other job, it returns the phase, or
// New if the job has no phase yet.
func (r *Job) Outcome() string {
	switch {
	case r.Ended.IsZero() && !r.Gone.IsZero():
		return Deleted
	case r.Phase == "":
		return "New"
	}
	return r.Phase
}
