// Package web serves the archive as JSON under /api/v1. A caller sees the jobs of a kind in those namespaces where they may
// get jobs of that kind now, and logs if they may get pods/log there. openapi.yaml describes it. Start reading at New.
package web

import (
	"cmp"
	"context"
	_ "embed" // the description
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/archive/store"
)

// Access says what the caller of a request may see.
type Access interface {
	// MayGet returns whether the caller may get a resource, such as pods/log, in a namespace; the empty one stands for all.
	MayGet(ctx context.Context, resource schema.GroupResource, namespace string) (bool, error)
}

// API is the HTTP handler.
type API struct {
	store *store.Store
	admit func(http.ResponseWriter, *http.Request) Access
	mux   *http.ServeMux
}

//go:embed openapi.yaml
var description []byte

// New returns the handler of an archive. admit returns what the caller of a request may see; if it returns nil, it has
// answered the request.
func New(s *store.Store, admit func(http.ResponseWriter, *http.Request) Access) *API {
	a := &API{store: s, admit: admit, mux: http.NewServeMux()}
	openapi, err := yaml.YAMLToJSON(description)
	if err != nil {
		panic(err) // the file is part of the program
	}
	a.mux.HandleFunc("GET /api/v1/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(openapi)
	})
	for pattern, serve := range map[string]func(*http.Request, *scope) (any, error){
		"GET /api/v1/history/jobs":            a.jobs,
		"GET /api/v1/history/jobs/{uid}":      a.job,
		"GET /api/v1/history/jobs/{uid}/logs": a.logs,
		"GET /api/v1/history/usage":           a.usage,
	} {
		a.mux.HandleFunc(pattern, a.handler(serve))
	}
	a.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		fail(w, &problem{http.StatusNotFound, "there is no such resource: /api/v1/openapi.json lists them"})
	})
	return a
}

// ServeHTTP answers requests below /api/v1.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// problem is an error with the code of its answer.
type problem struct {
	code int
	text string
}

// Error implements error.
func (p *problem) Error() string { return p.text }

func fail(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	var p *problem
	if errors.As(err, &p) {
		code = p.code
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(archive.Error{Error: err.Error()}) // nobody is left to tell
}

// csvTable is an answer that is no JSON.
type csvTable struct {
	by   archive.By
	rows []archive.Usage
}

// handler admits the caller, answers with what serve returns, and tells caches to keep nothing.
func (a *API) handler(serve func(*http.Request, *scope) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		access := a.admit(w, r)
		if access == nil {
			return
		}
		answer, err := serve(r, &scope{access: access, store: a.store, known: map[store.Place]bool{}})
		if err != nil {
			fail(w, err)
			return
		}
		if table, ok := answer.(*csvTable); ok {
			w.Header().Set("Content-Type", "text/csv; charset=utf-8")
			w.Header().Set("Content-Disposition", `attachment; filename="usage-by-`+string(table.by)+`.csv"`)
			_ = archive.WriteCSV(w, table.by, table.rows) // nobody is left to tell
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}
}

// These bound lists.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

func (a *API) jobs(r *http.Request, in *scope) (any, error) {
	p := params{r.URL.Query(), nil}
	f := store.Filter{Text: p.Get("text"), Name: p.Get("name"), Namespace: p.Get("namespace"), Queue: p.Get("queue"), User: p.Get("user"), Phase: p.Get("phase"),
		Kind: p.kind(), From: p.time("from", time.Time{}), To: p.time("to", time.Time{}), Gone: p.truth("gone"), Limit: p.count("limit", defaultLimit, maxLimit), Offset: p.count("offset", 0, 1<<31)}
	if p.err != nil {
		return nil, p.err
	}
	var err error
	if f.Places, err = in.places(r.Context(), f.Kind, f.Namespace); err != nil {
		return nil, err
	}
	limit := f.Limit
	f.Limit++
	all, err := a.store.Jobs(r.Context(), f)
	if err != nil {
		return nil, err
	}
	list := archive.JobList{Jobs: all[:min(len(all), limit)], More: len(all) > limit}
	if list.Jobs == nil {
		list.Jobs = []*archive.Job{}
	}
	return &list, nil
}

// find returns the job that a path names, if the caller may see it.
func (a *API) find(r *http.Request, in *scope) (*archive.Job, error) {
	missing := &problem{http.StatusNotFound, "the archive has no such job, or you may not see it"}
	j, err := a.store.Job(r.Context(), r.PathValue("uid"))
	if errors.Is(err, store.ErrNone) {
		return nil, missing
	}
	if err != nil {
		return nil, err
	}
	may, err := in.may(r.Context(), store.Place{Kind: j.Kind, Namespace: j.Namespace})
	if err != nil {
		return nil, err
	}
	if !may {
		return nil, missing
	}
	return j, nil
}

func (a *API) job(r *http.Request, in *scope) (any, error) {
	j, err := a.find(r, in)
	if err != nil {
		return nil, err
	}
	attempts, err := a.store.Attempts(r.Context(), j.UID)
	if err != nil {
		return nil, err
	}
	events, err := a.store.Events(r.Context(), j.UID)
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

func (a *API) logs(r *http.Request, in *scope) (any, error) {
	j, err := a.find(r, in)
	if err != nil {
		return nil, err
	}
	if may, err := in.access.MayGet(r.Context(), schema.GroupResource{Resource: "pods/log"}, j.Namespace); err != nil || !may {
		return nil, cmp.Or(err, error(&problem{http.StatusForbidden, "you may not read logs in namespace " + j.Namespace}))
	}
	logs, err := a.store.Logs(r.Context(), j.UID)
	if err != nil {
		return nil, err
	}
	byAttempt := map[string][]*archive.Log{}
	for _, l := range logs {
		byAttempt[l.Attempt] = append(byAttempt[l.Attempt], l)
	}
	attempts, err := a.store.Attempts(r.Context(), j.UID)
	if err != nil {
		return nil, err
	}
	replica, answer := r.URL.Query().Get("replica"), &archive.LogList{Logs: []archive.LogText{}}
	for _, x := range attempts {
		if replica != "" && replica != fmt.Sprintf("%s-%d", x.Role, x.Rank) {
			continue
		}
		for _, l := range byAttempt[x.UID] {
			answer.Logs = append(answer.Logs, archive.LogText{Role: x.Role, Rank: x.Rank, Attempt: x.Number, Container: l.Container, Cut: l.Cut,
				Text: strings.ToValidUTF8(string(l.Text), "\uFFFD")})
		}
	}
	return answer, nil
}

// defaultSpan is the span of time that ends now for which usage is counted if the request does not say it.
const defaultSpan = 30 * 24 * time.Hour

func (a *API) usage(r *http.Request, in *scope) (any, error) {
	p := params{r.URL.Query(), nil}
	now := time.Now().UTC().Truncate(time.Second)
	span := archive.Span{To: p.time("to", now)}
	span.From, span.Step = p.time("from", span.To.Add(-defaultSpan)), p.duration("step")
	if span.To.After(now) {
		span.To = now // running attempts have not held the future
	}
	by := archive.By(p.oneOf("by", string(archive.ByQueue), string(archive.ByNamespace), string(archive.ByUser)))
	format := p.oneOf("format", "json", "csv")
	sums := archive.Sums{Span: span, By: by, Extended: p.truth("extended")}
	if p.err == nil {
		p.refuse(span.Check())
	}
	if p.err != nil {
		return nil, p.err
	}
	places, err := in.places(r.Context(), "", p.Get("namespace"))
	if err != nil {
		return nil, err
	}
	if err := a.store.Held(r.Context(), places, span.From, span.To, sums.Add); err != nil {
		return nil, err
	}
	if format == "csv" {
		return &csvTable{by, sums.Rows()}, nil
	}
	return &archive.UsageList{Usage: sums.Rows()}, nil
}
