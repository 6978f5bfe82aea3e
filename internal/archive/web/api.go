// Package web serves the archive as JSON under /api/v1. A caller sees the jobs of a kind in the namespaces in which
// they may currently get jobs of that kind, and logs if they may also get pods/log there. openapi.yaml describes the
// API. Start reading at New.
package web

import (
	"context"
	_ "embed" // for openapi.yaml
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/archive/store"
)

// Access checks what the caller of a request may see.
type Access interface {
	// MayGet returns for each of the namespaces whether the caller may get a resource, such as pods/log, there.
	MayGet(ctx context.Context, resource schema.GroupResource, namespaces []string) ([]bool, error)
}

// API is the HTTP handler of the archive.
type API struct {
	store *store.Store
	admit func(http.ResponseWriter, *http.Request) Access
	mux   *http.ServeMux
}

//go:embed openapi.yaml
var description []byte

// New returns the handler of an archive. admit returns the access of the caller of a request; if it returns nil, it has
// already answered the request.
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
	for pattern, serve := range map[string]func(*http.Request, *Reader) (any, error){
		"GET /api/v1/history/jobs":            jobs,
		"GET /api/v1/history/jobs/{uid}":      job,
		"GET /api/v1/history/jobs/{uid}/logs": logs,
		"GET /api/v1/history/usage":           usage,
	} {
		a.mux.HandleFunc(pattern, a.handler(serve))
	}
	a.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		fail(w, archive.Refuse(http.StatusNotFound, "there is no such resource: /api/v1/openapi.json lists them"))
	})
	return a
}

// ServeHTTP answers requests below /api/v1.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

func fail(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	var refusal *archive.Refusal
	if errors.As(err, &refusal) {
		code = refusal.Status
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(archive.Error{Error: err.Error()}) // fails only if the client has closed the connection
}

// csvTable is a response in CSV instead of JSON.
type csvTable struct {
	by   archive.By
	rows []archive.Usage
}

// handler admits the caller, sends the result of serve, and disables caching.
func (a *API) handler(serve func(*http.Request, *Reader) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		access := a.admit(w, r)
		if access == nil {
			return
		}
		answer, err := serve(r, NewReader(a.store, access))
		if err != nil {
			fail(w, err)
			return
		}
		if table, ok := answer.(*csvTable); ok {
			w.Header().Set("Content-Type", "text/csv; charset=utf-8")
			w.Header().Set("Content-Disposition", `attachment; filename="usage-by-`+string(table.by)+`.csv"`)
			_ = archive.WriteCSV(w, table.by, table.rows) // fails only if the client has closed the connection
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}
}

// jobs answers a request for a list of jobs.
func jobs(r *http.Request, in *Reader) (any, error) {
	p := params{r.URL.Query(), nil}
	q := archive.JobQuery{Text: p.Get("text"), Name: p.Get("name"), Namespace: p.Get("namespace"), Queue: p.Get("queue"), User: p.Get("user"), Phase: p.Get("phase"),
		Outcome: p.Get("outcome"), Kind: p.kind(), From: p.time("from", time.Time{}), To: p.time("to", time.Time{}), Gone: p.truth("gone"),
		Limit: p.count("limit", defaultLimit, maxLimit), After: p.cursor("after")}
	if p.err != nil {
		return nil, p.err
	}
	return in.Jobs(r.Context(), &q)
}

func job(r *http.Request, in *Reader) (any, error) { return in.Job(r.Context(), r.PathValue("uid")) }

func logs(r *http.Request, in *Reader) (any, error) {
	return in.Logs(r.Context(), r.PathValue("uid"), r.URL.Query().Get("replica"))
}

// defaultSpan is the length of the time span that usage covers if the request does not set the beginning.
const defaultSpan = 30 * 24 * time.Hour

func usage(r *http.Request, in *Reader) (any, error) {
	p := params{r.URL.Query(), nil}
	now := time.Now().UTC().Truncate(time.Second)
	q := archive.UsageQuery{Span: archive.Span{To: p.time("to", now)}, Namespace: p.Get("namespace"), Extended: p.truth("extended"),
		By: archive.By(p.oneOf("by", string(archive.ByQueue), string(archive.ByNamespace), string(archive.ByUser)))}
	q.From, q.Step = p.time("from", q.To.Add(-defaultSpan)), p.duration("step")
	format := p.oneOf("format", "json", "csv")
	if p.err != nil {
		return nil, p.err
	}
	list, err := in.Usage(r.Context(), &q)
	if err != nil {
		return nil, err
	}
	if format == "csv" {
		return &csvTable{q.By, list.Usage}, nil
	}
	return list, nil
}
