// Package server serves the console: it admits its user's browser alone, turns addresses into pages, streams what changes,
// and carries out actions with its user's rights. What pages show comes from package view, and how from package page.
// Start reading at New.
package server

import (
	"errors"
	"net/http"
	"time"

	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"tensorstack.dev/batch/internal/console/live"
	"tensorstack.dev/batch/internal/console/page"
	"tensorstack.dev/batch/internal/console/view"
	"tensorstack.dev/batch/internal/observed"
	"tensorstack.dev/batch/internal/steer"
)

// Options are what a server needs.
type Options struct {
	Cache *live.Cache
	// Objects and Core act with the rights of the user.
	Objects dynamic.Interface
	Core    corev1client.CoreV1Interface
	// Where names the cluster.
	Where string
	// Gate admits requests.
	Gate *Gate
}

// Server is the console's HTTP handler.
type Server struct {
	Options
	pages *page.Renderer
	feeds feeds
	steer steer.Client
	mux   *http.ServeMux
}

// New returns a server.
func New(o Options) *Server {
	s := &Server{Options: o, pages: page.New(), mux: http.NewServeMux(), steer: steer.Client{Objects: o.Objects, Manager: "t9k"}}
	s.mux.HandleFunc("GET /{$}", s.jobs)
	s.mux.HandleFunc("GET /jobs/{namespace}/{kind}/{name}", s.job)
	s.mux.HandleFunc("POST /jobs/{namespace}/{kind}/{name}/{verb}", s.act)
	s.mux.HandleFunc("GET /jobs/{namespace}/{kind}/{name}/logs", s.logs)
	s.mux.HandleFunc("GET /jobs/{namespace}/{kind}/{name}/logs/stream", s.logStream)
	s.mux.HandleFunc("GET /jobs/{namespace}/{kind}/{name}/logs/download", s.logDownload)
	s.mux.HandleFunc("GET /act", s.askMany)
	s.mux.HandleFunc("POST /act", s.actMany)
	s.mux.HandleFunc("GET /queues", s.queues)
	s.mux.HandleFunc("GET /nodes", s.nodes)
	s.mux.Handle("GET /static/", staticFiles())
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.problem(w, r, http.StatusNotFound, "There is no such page", r.URL.Path+" leads nowhere.")
	})
	return s
}

// ServeHTTP serves the requests that the gate admits.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	headers(w.Header())
	if !s.Gate.admit(w, r) {
		return
	}
	s.mux.ServeHTTP(w, r)
}

// headers sets what all answers have in common.
func headers(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	// With no-referrer, browsers send "Origin: null" with the forms of our own pages.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// staticFiles serves the stylesheet and the script, whose addresses change with their contents.
func staticFiles() http.Handler {
	files := http.StripPrefix("/static/", http.FileServerFS(page.Static()))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "" {
			w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
		}
		files.ServeHTTP(w, r)
	})
}

// content is what an address shows.
type content struct {
	title, nav string
	// template is the name of the content's template, and topics are those whose changes concern it.
	template string
	topics   []string
	// make returns the view model; nil if what it shows is gone.
	make func(now time.Time) any
	// moves is true if the content changes with time alone.
	moves func() bool
}

// show answers with a page, or with the stream of its changes if the request asks for one.
func (s *Server) show(w http.ResponseWriter, r *http.Request, c content) {
	if r.Header.Get("Accept") == "text/event-stream" {
		s.stream(w, r, c)
		return
	}
	now := time.Now()
	data := c.make(now)
	if data == nil {
		s.problem(w, r, http.StatusNotFound, "It is gone", "What this page showed is no longer there.")
		return
	}
	f := page.Frame{Title: c.title, Page: c.nav, Where: s.Where, Live: c.template != "logs" && c.template != "act", Notice: s.Gate.notice(w, r)}
	s.write(w, r, http.StatusOK, f, c.template, data)
}

// write renders and sends a page.
func (s *Server) write(w http.ResponseWriter, r *http.Request, code int, f page.Frame, name string, data any) {
	html, err := s.pages.Page(f, name, data, time.Now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	if r.Method != http.MethodHead {
		_, _ = w.Write([]byte(html))
	}
}

// problem answers with a page that says what is wrong.
func (s *Server) problem(w http.ResponseWriter, r *http.Request, code int, title, text string) {
	s.write(w, r, code, page.Frame{Title: title, Where: s.Where}, "problem", struct{ Title, Text string }{title, text})
}

func (s *Server) jobs(w http.ResponseWriter, r *http.Request) {
	f := view.ParseJobFilter(r.URL.Query())
	s.show(w, r, content{title: "Jobs", nav: "jobs", template: "jobs", topics: []string{live.TopicJobs}, make: func(now time.Time) any {
		p := view.Jobs(s.Cache.Jobs(), f, s.Cache.HiddenJobs(), now)
		return &p
	}})
}

func (s *Server) queues(w http.ResponseWriter, r *http.Request) {
	s.show(w, r, content{title: "Queues", nav: "queues", template: "queues", topics: live.TopicsQueues, make: func(time.Time) any {
		p := view.Queues(s.Cache.Queues())
		return &p
	}})
}

func (s *Server) nodes(w http.ResponseWriter, r *http.Request) {
	by := r.URL.Query().Get("by")
	s.show(w, r, content{title: "Nodes", nav: "nodes", template: "nodes", topics: live.TopicsNodes, make: func(time.Time) any {
		p := view.Nodes(s.Cache.Nodes(), by)
		return &p
	}})
}

// errNoJob means that an address names no job that there is.
var errNoJob = errors.New("there is no such job, or you may not see it")

// find returns the job that an address names.
func (s *Server) find(r *http.Request) (*observed.Job, error) {
	kind := view.KindOf(r.PathValue("kind"))
	if kind == nil {
		return nil, errNoJob
	}
	j := s.Cache.Job(kind, r.PathValue("namespace"), r.PathValue("name"))
	if j == nil {
		return nil, errNoJob
	}
	return j, nil
}
