package archive

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// JobQuery selects jobs. A field with the zero value selects all.
type JobQuery struct {
	// Text is a part of the name. Name is the whole name.
	Text, Name, Namespace, Kind, Queue, User, Phase string
	// Outcome is what Job.Outcome returns.
	Outcome string
	// From and To select jobs that existed within a span of time.
	From, To time.Time
	// Gone selects jobs that no longer exist.
	Gone bool
	// Limit is the largest number of jobs.
	Limit int
	// After selects the jobs that come after another one in the order of lists.
	After Cursor
}

// Values returns the query as parameters of the API.
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

// Cursor is the place of a job in the order of lists: the newest job first, and of those of one moment the largest UID. A
// list that goes on after a cursor neither repeats nor leaves out a job when others come or go. The zero value is the
// beginning.
type Cursor struct {
	Created time.Time
	UID     string
}

// CursorOf returns the place of a job.
func CursorOf(j *Job) Cursor { return Cursor{j.Created, j.UID} }

// String returns the cursor as a parameter; empty for the beginning.
func (c Cursor) String() string {
	if c.UID == "" {
		return ""
	}
	return strconv.FormatInt(c.Created.UnixMilli(), 10) + "." + c.UID
}

// ErrCursor means that a text is no cursor.
var ErrCursor = errors.New("this is no place in a list")

// ParseCursor reads what String returns.
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

// UsageQuery selects usage.
type UsageQuery struct {
	Span
	By By
	// Extended leaves out cpu and memory.
	Extended bool
	// Namespace is empty for all.
	Namespace string
}

// Values returns the query as parameters of the API.
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

// Refusal is why a request for records is not answered, with the status of HTTP that says so.
type Refusal struct {
	Status int
	Text   string
}

// Error implements error.
func (r *Refusal) Error() string { return r.Text }

// Refuse returns a refusal.
func Refuse(status int, format string, args ...any) *Refusal {
	return &Refusal{status, fmt.Sprintf(format, args...)}
}

// Deleted is the outcome of a job that was deleted before it had ended.
const Deleted = "Deleted"

// Outcome returns how a job ended; its phase as long as it exists or if it had ended before it was deleted.
func (r *Job) Outcome() string {
	switch {
	case r.Ended.IsZero() && !r.Gone.IsZero():
		return Deleted
	case r.Phase == "":
		return "New"
	}
	return r.Phase
}
