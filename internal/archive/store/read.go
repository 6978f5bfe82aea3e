package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tensorstack.dev/batch/internal/archive"
)

// ErrNone means that the archive does not contain the record.
var ErrNone = errors.New("the archive has no such record")

// Scope is a kind of job in a namespace. Access is granted per scope.
type Scope struct{ Kind, Namespace string }

// conditions returns a WHERE condition that selects the jobs of q in the given scopes, and the arguments of the
// condition. In the query, the table of jobs must have the alias j. If scopes is nil, the condition selects jobs of all
// scopes. A scope without a namespace stands for all namespaces.
func conditions(scopes []Scope, q *archive.JobQuery) (string, []any) {
	all, args := []string{"1 = 1"}, []any{}
	and := func(condition string, values ...any) {
		all, args = append(all, condition), append(args, values...)
	}
	if scopes != nil {
		condition, values := within(scopes)
		and(condition, values...)
	}
	for column, value := range map[string]string{"j.name": q.Name, "j.namespace": q.Namespace, "j.kind": q.Kind, "j.queue": q.Queue, "j.username": q.User, "j.phase": q.Phase} {
		if value != "" {
			and(column+" = ?", value)
		}
	}
	if q.Text != "" {
		escaped := strings.NewReplacer(`!`, `!!`, `%`, `!%`, `_`, `!_`).Replace(strings.ToLower(q.Text))
		and("LOWER(j.name) LIKE ? ESCAPE '!'", "%"+escaped+"%")
	}
	const deleted = "j.ended = 0 AND j.gone > 0"
	switch q.Outcome {
	case "":
	case archive.Deleted:
		and(deleted)
	default:
		and("j.phase = ? AND NOT ("+deleted+")", q.Outcome)
	}
	if q.Gone {
		and("j.gone > 0")
	}
	if !q.To.IsZero() {
		and("j.created < ?", milli(q.To))
	}
	if !q.From.IsZero() {
		and("(CASE WHEN j.ended > 0 THEN j.ended WHEN j.gone > 0 THEN j.gone ELSE ? END) >= ?", milli(q.From), milli(q.From))
	}
	if q.After.UID != "" {
		and("(j.created, j.uid) < (?, ?)", milli(q.After.Created), q.After.UID)
	}
	return strings.Join(all, " AND "), args
}

// within returns the condition that a job is in one of the scopes.
func within(scopes []Scope) (string, []any) {
	all, args := []string{"1 = 0"}, []any{}
	for _, p := range scopes {
		if p.Namespace == "" {
			all, args = append(all, "j.kind = ?"), append(args, p.Kind)
		} else {
			all, args = append(all, "(j.kind = ? AND j.namespace = ?)"), append(args, p.Kind, p.Namespace)
		}
	}
	return "(" + strings.Join(all, " OR ") + ")", args
}

const jobColumns = "j.uid, j.version, j.kind, j.namespace, j.name, j.queue, j.username, j.phase, j.why, j.created, j.ended, j.replicas, j.restarts, j.gone"

// Jobs returns the selected jobs in the given scopes without their objects and conditions, newest first. If scopes is
// nil, Jobs returns jobs of all scopes. A scope without a namespace stands for all namespaces.
func (s *Store) Jobs(ctx context.Context, scopes []Scope, q *archive.JobQuery) ([]*archive.Job, error) {
	where, args := conditions(scopes, q)
	query := "SELECT " + jobColumns + " FROM jobs j WHERE " + where + " ORDER BY j.created DESC, j.uid DESC"
	if q.Limit > 0 {
		query, args = query+" LIMIT ?", append(args, q.Limit)
	}
	var all []*archive.Job
	err := s.query(ctx, query, args, func(rows *sql.Rows) error {
		j, err := scanJob(rows)
		all = append(all, j)
		return err
	})
	return all, err
}

func scanJob(rows *sql.Rows, more ...any) (*archive.Job, error) {
	j := &archive.Job{}
	var created, ended, gone int64
	err := rows.Scan(append([]any{&j.UID, &j.Version, &j.Kind, &j.Namespace, &j.Name, &j.Queue, &j.User, &j.Phase, &j.Why, &created, &ended, &j.Replicas, &j.Restarts,
		&gone}, more...)...)
	j.Created, j.Ended, j.Gone = moment(created), moment(ended), moment(gone)
	return j, err
}

// Job returns a job with its object and all conditions that it has had, oldest first. It returns ErrNone if the
// archive does not have the job.
func (s *Store) Job(ctx context.Context, uid string) (*archive.Job, error) {
	var j *archive.Job
	err := s.query(ctx, "SELECT "+jobColumns+", j.object FROM jobs j WHERE j.uid = ?", []any{uid}, func(rows *sql.Rows) error {
		var object string
		var err error
		if j, err = scanJob(rows, &object); err == nil {
			j.Object = json.RawMessage(object)
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case j == nil:
		return nil, ErrNone
	}
	err = s.query(ctx, "SELECT type, status, reason, message, since FROM conditions WHERE job = ? ORDER BY since, type, status", []any{uid}, func(rows *sql.Rows) error {
		var c archive.Condition
		var since int64
		err := rows.Scan(&c.Type, &c.Status, &c.Reason, &c.Message, &since)
		c.Since = moment(since)
		j.Conditions = append(j.Conditions, c)
		return err
	})
	return j, err
}

const attemptColumns = `a.uid, a.version, a.job, a.replica, a.role, a.replica_rank, a.number, a.node, a.created, a.scheduled, a.started, a.ended, a.outcome,
	a.exit_code, a.cause, a.requests`

func scanAttempt(rows *sql.Rows, a *archive.Attempt, pod *string) error {
	var created, scheduled, started, ended int64
	var code sql.Null[int32]
	var requests, outcome string
	if err := rows.Scan(&a.UID, &a.Version, &a.Job, &a.Replica, &a.Role, &a.Rank, &a.Number, &a.Node, &created, &scheduled, &started, &ended, &outcome,
		&code, &a.Cause, &requests, pod); err != nil {
		return err
	}
	a.Created, a.Scheduled, a.Started, a.Ended, a.Outcome = moment(created), moment(scheduled), moment(started), moment(ended), archive.Outcome(outcome)
	if code.Valid {
		a.ExitCode = &code.V
	}
	return json.Unmarshal([]byte(requests), &a.Requests)
}

// Attempts returns the attempts of all replicas of a job with their pods, sorted by role, rank, creation time and
// number. The creation time comes before the number, because the numbers start again when scaling removes a replica and
// later adds it again.
func (s *Store) Attempts(ctx context.Context, job string) ([]*archive.Attempt, error) {
	var all []*archive.Attempt
	err := s.query(ctx, "SELECT "+attemptColumns+", a.pod FROM attempts a WHERE a.job = ? ORDER BY a.role, a.replica_rank, a.created, a.number", []any{job}, func(rows *sql.Rows) error {
		a := &archive.Attempt{}
		var pod string
		err := scanAttempt(rows, a, &pod)
		a.Pod = json.RawMessage(pod)
		all = append(all, a)
		return err
	})
	return all, err
}

// Events returns the events about a job, oldest first.
func (s *Store) Events(ctx context.Context, job string) ([]*archive.Event, error) {
	var all []*archive.Event
	err := s.query(ctx, "SELECT uid, version, job, at, object FROM events WHERE job = ? ORDER BY at, version", []any{job}, func(rows *sql.Rows) error {
		e := &archive.Event{}
		var at int64
		var object string
		err := rows.Scan(&e.UID, &e.Version, &e.Job, &at, &object)
		e.At, e.Object = moment(at), json.RawMessage(object)
		all = append(all, e)
		return err
	})
	return all, err
}

// Logs returns the logs of a job, oldest first.
func (s *Store) Logs(ctx context.Context, job string) ([]*archive.Log, error) {
	var all []*archive.Log
	err := s.query(ctx, "SELECT attempt, container, job, at, cut, text FROM logs WHERE job = ? ORDER BY at, attempt, container", []any{job}, func(rows *sql.Rows) error {
		l := &archive.Log{}
		var at int64
		var cut int
		err := rows.Scan(&l.Attempt, &l.Container, &l.Job, &at, &cut, &l.Text)
		l.At, l.Cut = moment(at), cut != 0
		all = append(all, l)
		return err
	})
	return all, err
}

// Scopes returns the scopes that contain archived jobs.
func (s *Store) Scopes(ctx context.Context) ([]Scope, error) {
	var all []Scope
	err := s.query(ctx, "SELECT DISTINCT kind, namespace FROM jobs ORDER BY kind, namespace", nil, func(rows *sql.Rows) error {
		var p Scope
		err := rows.Scan(&p.Kind, &p.Namespace)
		all = append(all, p)
		return err
	})
	return all, err
}

// Held calls f for each attempt in the given scopes that held resources at some time between from and to. It reads only
// the fields that usage sums need, because there may be many attempts. f must not modify or retain its argument.
func (s *Store) Held(ctx context.Context, scopes []Scope, from, to time.Time, f func(*archive.Held)) error {
	where, args := conditions(scopes, &archive.JobQuery{})
	args = append(args, milli(to), milli(from))
	query := `SELECT a.scheduled, a.ended, a.outcome, a.requests, j.namespace, j.queue, j.username FROM attempts a JOIN jobs j ON j.uid = a.job
		WHERE ` + where + ` AND a.scheduled > 0 AND a.scheduled < ? AND (a.outcome = '' OR a.ended > ?)`
	parsed := map[string]corev1.ResourceList{} // many attempts have the same requests
	var h archive.Held
	var scheduled, ended int64
	var requests sql.RawBytes
	return s.query(ctx, query, args, func(rows *sql.Rows) error {
		if err := rows.Scan(&scheduled, &ended, &h.Outcome, &requests, &h.Namespace, &h.Queue, &h.User); err != nil {
			return err
		}
		h.Scheduled, h.Ended = moment(scheduled), moment(ended)
		list, known := parsed[string(requests)]
		if !known {
			if err := json.Unmarshal(requests, &list); err != nil {
				return err
			}
			parsed[string(requests)] = list
		}
		h.Requests = list
		f(&h)
		return nil
	})
}

// Known is the state that a recorder needs at its start.
type Known struct {
	// Jobs holds the kinds of the jobs that are not known to be deleted, and Versions their resourceVersions, by UID.
	Jobs     map[string]string
	Versions map[string]int64
	// Open holds the UIDs of attempts whose end is not known.
	Open map[string]bool
	// Logged holds the UIDs of attempts of these jobs that have a log.
	Logged map[string]bool
}

// Known returns the state that a recorder needs at its start: jobs that may still exist, attempts without an end, and
// attempts that have a log.
func (s *Store) Known(ctx context.Context) (*Known, error) {
	k := &Known{Jobs: map[string]string{}, Versions: map[string]int64{}, Open: map[string]bool{}, Logged: map[string]bool{}}
	err := s.query(ctx, "SELECT uid, kind, version FROM jobs WHERE gone = 0", nil, func(rows *sql.Rows) error {
		var uid, kind string
		var version int64
		err := rows.Scan(&uid, &kind, &version)
		k.Jobs[uid], k.Versions[uid] = kind, version
		return err
	})
	if err != nil {
		return nil, err
	}
	set := func(m map[string]bool) func(rows *sql.Rows) error {
		return func(rows *sql.Rows) error {
			var uid string
			err := rows.Scan(&uid)
			m[uid] = true
			return err
		}
	}
	if err := s.query(ctx, "SELECT uid FROM attempts WHERE outcome = ''", nil, set(k.Open)); err != nil {
		return nil, err
	}
	if err := s.query(ctx, "SELECT DISTINCT l.attempt FROM logs l JOIN jobs j ON j.uid = l.job WHERE j.gone = 0", nil, set(k.Logged)); err != nil {
		return nil, err
	}
	return k, nil
}
