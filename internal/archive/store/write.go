package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tensorstack.dev/batch/internal/archive"
)

// Batch is a set of records that are written in one transaction.
type Batch struct {
	Jobs     []*archive.Job
	Attempts []*archive.Attempt
	Events   []*archive.Event
	Logs     []*archive.Log
	// Gone holds the UIDs of jobs, and Lost the UIDs of attempts, that the recorder found missing at time At.
	Gone, Lost []string
	// At is when the batch was collected. The store keeps the largest At, as the last time at which a recorder was
	// running.
	At time.Time
}

// Size returns the number of records.
func (b *Batch) Size() int {
	return len(b.Jobs) + len(b.Attempts) + len(b.Events) + len(b.Logs) + len(b.Gone) + len(b.Lost)
}

// Write writes a batch completely or, if it returns an error, not at all.
func (s *Store) Write(ctx context.Context, b *Batch) error {
	err := s.transact(ctx, func(tx *tx) error {
		for _, j := range b.Jobs {
			tx.job(j)
		}
		for _, a := range b.Attempts {
			tx.attempt(a)
		}
		for _, e := range b.Events {
			tx.exec(`INSERT INTO events (uid, version, job, at, object) VALUES (?, ?, ?, ?, ?) ON CONFLICT (uid) DO UPDATE SET
				version = excluded.version, at = excluded.at, object = excluded.object WHERE excluded.version > events.version`,
				e.UID, e.Version, e.Job, milli(e.At), text(string(e.Object)))
		}
		for _, uid := range b.Gone {
			tx.exec(`UPDATE jobs SET gone = ? WHERE uid = ? AND gone = 0`, milli(b.At), uid)
		}
		for _, uid := range b.Lost {
			tx.lost(uid, b.At)
		}
		for _, l := range b.Logs {
			tx.log(l, s.options.JobLogs)
		}
		if len(b.Logs) > 0 {
			tx.prune(s.options.AllLogs)
		}
		tx.exec(`UPDATE moments SET at = ? WHERE name = 'recording' AND at < ?`, milli(b.At), milli(b.At))
		return tx.err
	})
	if err != nil {
		return fmt.Errorf("writing to the archive: %w", err)
	}
	return nil
}

// text replaces NUL characters, which PostgreSQL cannot store in text columns, by U+FFFD.
func text(s string) string { return string(bytes.ReplaceAll([]byte(s), []byte{0}, []byte("\uFFFD"))) }

func (t *tx) job(j *archive.Job) {
	t.exec(`INSERT INTO jobs (uid, version, kind, namespace, name, queue, username, phase, why, created, ended, replicas, restarts, gone, object)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (uid) DO UPDATE SET version = excluded.version, queue = excluded.queue,
		username = excluded.username, phase = excluded.phase, why = excluded.why, ended = excluded.ended, replicas = excluded.replicas,
		restarts = excluded.restarts, gone = excluded.gone, object = excluded.object WHERE excluded.version > jobs.version`,
		j.UID, j.Version, j.Kind, j.Namespace, j.Name, j.Queue, text(j.User), j.Phase, text(j.Why), milli(j.Created), milli(j.Ended), j.Replicas, j.Restarts,
		milli(j.Gone), text(string(j.Object)))
	for _, c := range j.Conditions {
		t.exec(`INSERT INTO conditions (job, type, status, reason, message, since) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			j.UID, c.Type, c.Status, c.Reason, text(c.Message), milli(c.Since))
	}
}

func (t *tx) attempt(a *archive.Attempt) {
	if t.err != nil {
		return
	}
	var requests []byte
	if requests, t.err = json.Marshal(a.Requests); t.err != nil {
		return
	}
	// A lost attempt keeps the version at which its pod was last seen, so that a later record of the pod replaces it.
	t.exec(`INSERT INTO attempts (uid, version, job, replica, role, replica_rank, number, node, created, scheduled, started, ended, outcome, exit_code, cause, requests, pod)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (uid) DO UPDATE SET version = excluded.version, node = excluded.node,
		scheduled = excluded.scheduled, started = excluded.started, ended = excluded.ended, outcome = excluded.outcome, exit_code = excluded.exit_code,
		cause = excluded.cause, requests = excluded.requests, pod = excluded.pod
		WHERE excluded.version > attempts.version OR (excluded.version = attempts.version AND attempts.outcome = '')`,
		a.UID, a.Version, a.Job, a.Replica, a.Role, a.Rank, a.Number, a.Node, milli(a.Created), milli(a.Scheduled), milli(a.Started), milli(a.Ended),
		string(a.Outcome), a.ExitCode, text(a.Cause), string(requests), text(string(a.Pod)))
}

// lost ends an attempt whose pod was found missing at the time at. It does nothing if the attempt is unknown or has
// ended. If the last observed pod does not show when the attempt ended, lost takes the end of the job or, if the job
// has not ended, the last time at which a recorder was running.
func (t *tx) lost(uid string, at time.Time) {
	var pod string
	var recording, ended, scheduled int64
	t.row(`SELECT a.pod, m.at, COALESCE(j.ended, 0), a.scheduled FROM attempts a LEFT JOIN jobs j ON j.uid = a.job CROSS JOIN moments m
		WHERE a.uid = ? AND a.outcome = '' AND m.name = 'recording'`, []any{uid}, &pod, &recording, &ended, &scheduled)
	if errors.Is(t.err, sql.ErrNoRows) {
		t.err = nil
		return
	}
	var p corev1.Pod
	if t.err == nil {
		t.err = json.Unmarshal([]byte(pod), &p)
	}
	if t.err != nil {
		return
	}
	end := max(recording, scheduled)
	if ended > 0 {
		end = max(ended, scheduled)
	}
	var a archive.Attempt
	a.MarkDeleted(&p, moment(min(end, milli(at))), false)
	t.exec(`UPDATE attempts SET outcome = ?, ended = ?, exit_code = ?, cause = ? WHERE uid = ?`, string(a.Outcome), milli(a.Ended), a.ExitCode, text(a.Cause), uid)
}

// log stores the log of a container, and drops the oldest logs of the job until the job's logs fit into bound bytes.
func (t *tx) log(l *archive.Log, bound int64) {
	cut := 0
	if l.Cut {
		cut = 1
	}
	t.exec(`INSERT INTO logs (attempt, container, job, at, size, cut, text) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (attempt, container) DO UPDATE SET
		at = excluded.at, size = excluded.size, cut = excluded.cut, text = excluded.text WHERE excluded.at > logs.at`,
		l.Attempt, l.Container, l.Job, milli(l.At), len(l.Text), cut, append([]byte{}, l.Text...))
	t.exec(`DELETE FROM logs WHERE job = ? AND EXISTS (SELECT 1 FROM (SELECT attempt, container,
		SUM(size) OVER (ORDER BY at DESC, attempt DESC, container DESC) AS upto FROM logs WHERE job = ?) o
		WHERE o.attempt = logs.attempt AND o.container = logs.container AND o.upto > ?)`, l.Job, l.Job, bound)
}

// pruned is the largest number of logs that prune drops with one statement.
const pruned = 100

// prune drops the oldest logs until all logs together fit into bound bytes.
func (t *tx) prune(bound int64) {
	for t.err == nil {
		var size int64
		t.row(`SELECT CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM logs`, nil, &size)
		if t.err != nil || size <= bound {
			return
		}
		t.exec(`DELETE FROM logs WHERE EXISTS (SELECT 1 FROM (SELECT attempt, container, SUM(size) OVER (ORDER BY at, attempt, container) - size AS before
			FROM (SELECT attempt, container, size, at FROM logs ORDER BY at, attempt, container LIMIT ?) oldest) o
			WHERE o.attempt = logs.attempt AND o.container = logs.container AND o.before < ?)`, pruned, size-bound)
	}
}
