package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/archive/store"
	"tensorstack.dev/batch/internal/kinds"
)

// Reader reads the archive for the caller of one request, and returns only records that the caller may see. The API
// and the console's pages read through it. If a record is missing or the caller may not see it, its methods return an
// *archive.Refusal. A Reader is not safe for concurrent use.
type Reader struct {
	access Access
	store  *store.Store
	// known caches, for each scope, whether the caller may see its jobs.
	known map[store.Scope]bool
}

// NewReader returns the reader for the caller of one request.
func NewReader(s *store.Store, access Access) *Reader {
	return &Reader{access: access, store: s, known: map[store.Scope]bool{}}
}

// may reports whether the caller may see the jobs of a scope.
func (r *Reader) may(ctx context.Context, p store.Scope) (bool, error) {
	err := r.learn(ctx, []store.Scope{p})
	return r.known[p], err
}

// learn adds to known which of the scopes the caller may see. It calls Access.MayGet once for each kind with scopes
// that are not known yet.
func (r *Reader) learn(ctx context.Context, scopes []store.Scope) error {
	unknown := map[string][]string{}
	for _, p := range scopes {
		if _, known := r.known[p]; !known {
			unknown[p.Kind] = append(unknown[p.Kind], p.Namespace)
		}
	}
	for name, namespaces := range unknown {
		kind, err := kinds.ByName(name)
		if err != nil {
			continue // nobody may get jobs of a kind that no longer exists
		}
		may, err := r.access.MayGet(ctx, batch.GroupVersion.WithResource(kind.Plural).GroupResource(), namespaces)
		if err != nil {
			return err
		}
		for i, namespace := range namespaces {
			r.known[store.Scope{Kind: name, Namespace: namespace}] = may[i]
		}
	}
	return nil
}

// scopes returns the scopes that the caller may see, and never nil. kind and namespace restrict the result unless they
// are empty.
func (r *Reader) scopes(ctx context.Context, kind, namespace string) ([]store.Scope, error) {
	all, err := r.store.Scopes(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(p store.Scope) bool {
		return kind != "" && p.Kind != kind || namespace != "" && p.Namespace != namespace
	})
	if err := r.learn(ctx, all); err != nil {
		return nil, err
	}
	// The result must not be nil, because nil means all scopes to the store.
	return append([]store.Scope{}, slices.DeleteFunc(all, func(p store.Scope) bool { return !r.known[p] })...), nil
}

// Limits of lists.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

// Jobs returns the selected jobs that the caller may see, newest first. If q.Limit is zero, the list is empty.
func (r *Reader) Jobs(ctx context.Context, q *archive.JobQuery) (*archive.JobList, error) {
	scopes, err := r.scopes(ctx, q.Kind, q.Namespace)
	if err != nil {
		return nil, err
	}
	more := *q
	more.Limit++
	all, err := r.store.Jobs(ctx, scopes, &more)
	if err != nil {
		return nil, err
	}
	list := archive.JobList{Jobs: all[:min(len(all), q.Limit)], More: len(all) > q.Limit}
	if list.Jobs == nil {
		list.Jobs = []*archive.Job{}
	}
	if list.More && q.Limit > 0 {
		list.Next = archive.CursorOf(all[q.Limit-1]).String()
	}
	return &list, nil
}

// find returns a job if the caller may see it, and otherwise a Refusal with status 404.
func (r *Reader) find(ctx context.Context, uid string) (*archive.Job, error) {
	missing := archive.Refuse(http.StatusNotFound, "the archive has no such job, or you may not see it")
	j, err := r.store.Job(ctx, uid)
	if errors.Is(err, store.ErrNone) {
		return nil, missing
	}
	if err != nil {
		return nil, err
	}
	may, err := r.may(ctx, store.Scope{Kind: j.Kind, Namespace: j.Namespace})
	if err != nil {
		return nil, err
	}
	if !may {
		return nil, missing
	}
	return j, nil
}

// Job returns a job with all its records except its logs.
func (r *Reader) Job(ctx context.Context, uid string) (*archive.JobDetails, error) {
	j, err := r.find(ctx, uid)
	if err != nil {
		return nil, err
	}
	attempts, err := r.store.Attempts(ctx, j.UID)
	if err != nil {
		return nil, err
	}
	events, err := r.store.Events(ctx, j.UID)
	if err != nil {
		return nil, err
	}
	answer := &archive.JobDetails{Job: *j, Attempts: []archive.AttemptDetails{}, Events: []json.RawMessage{}}
	for _, x := range attempts {
		answer.Attempts = append(answer.Attempts, archive.AttemptDetails{Attempt: *x, Pod: x.Pod})
	}
	for _, e := range events {
		answer.Events = append(answer.Events, e.Object)
	}
	return answer, nil
}

// Logs returns the ends of the logs of a job's attempts, in the order of Store.Attempts. replica selects one replica by
// its name ROLE-RANK; empty selects all. If the caller may see the job but not read logs, Logs returns a Refusal with
// status 403.
func (r *Reader) Logs(ctx context.Context, uid, replica string) (*archive.LogList, error) {
	j, err := r.find(ctx, uid)
	if err != nil {
		return nil, err
	}
	may, err := r.access.MayGet(ctx, schema.GroupResource{Resource: "pods/log"}, []string{j.Namespace})
	if err != nil {
		return nil, err
	}
	if !may[0] {
		return nil, archive.Refuse(http.StatusForbidden, "you may not read logs in namespace %s", j.Namespace)
	}
	logs, err := r.store.Logs(ctx, j.UID)
	if err != nil {
		return nil, err
	}
	byAttempt := map[string][]*archive.Log{}
	for _, l := range logs {
		byAttempt[l.Attempt] = append(byAttempt[l.Attempt], l)
	}
	attempts, err := r.store.Attempts(ctx, j.UID)
	if err != nil {
		return nil, err
	}
	answer := &archive.LogList{Logs: []archive.LogText{}}
	for _, x := range attempts {
		if replica != "" && replica != fmt.Sprintf("%s-%d", x.Role, x.Rank) {
			continue
		}
		for _, l := range byAttempt[x.UID] {
			answer.Logs = append(answer.Logs, archive.LogText{UID: x.UID, Created: x.Created, Role: x.Role, Rank: x.Rank, Attempt: x.Number, Container: l.Container, Cut: l.Cut,
				Text: strings.ToValidUTF8(string(l.Text), "\uFFFD")})
		}
	}
	return answer, nil
}

// Usage returns the usage of the jobs that the caller may see.
func (r *Reader) Usage(ctx context.Context, q *archive.UsageQuery) (*archive.UsageList, error) {
	sums := archive.Sums{Span: q.Span, By: q.By, Extended: q.Extended}
	if now := time.Now().UTC().Truncate(time.Second); sums.Span.To.After(now) {
		sums.Span.To = now // a running attempt counts only up to the current time
	}
	if err := sums.Span.Check(); err != nil {
		return nil, archive.Refuse(http.StatusBadRequest, "%s", err)
	}
	scopes, err := r.scopes(ctx, "", q.Namespace)
	if err != nil {
		return nil, err
	}
	if err := r.store.Held(ctx, scopes, sums.Span.From, sums.Span.To, sums.Add); err != nil {
		return nil, err
	}
	return &archive.UsageList{Usage: sums.Rows()}, nil
}
