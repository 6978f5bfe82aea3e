// Package server is the HTTP server of the console: it serves pages, streams changes and performs actions, always with
// the rights of the caller whom Admission has admitted. Package view computes the contents of pages, and package page
// renders them. Start reading at New.
package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"tensorstack.dev/batch/internal/console/live"
	"tensorstack.dev/batch/internal/console/page"
	"tensorstack.dev/batch/internal/console/submit"
	"tensorstack.dev/batch/internal/console/view"
	"tensorstack.dev/batch/internal/observed"
	"tensorstack.dev/batch/internal/tensorboard/forward"
)

// Options configure a server.
type Options struct {
	Cache *live.Cache
	// Where is the name of the cluster on pages.
	Where string
	// Namespace is the namespace of submitted objects without one, unless the user chooses another; empty means
	// "default".
	Namespace string
	// Admission admits requests.
	Admission Admission
	// Boards opens TensorBoards at addresses of the user's machine; nil if the console runs on another machine.
	// Server.Close closes them.
	Boards *forward.Boards
	// API serves the archive below /api/v1; nil if there is no archive. It can get the caller of a request from
	// CallerOf.
	API http.Handler
	// History returns the archive with the rights of a caller; nil if there is no archive.
	History func(*Caller) (History, error)
}

// Server is the console's HTTP handler.
type Server struct {
	Options
	pages *page.Renderer
	feeds feeds
	// renderings caches renderings that several feeds share.
	renderings renderings
	// checker finds the errors of submitted manifests.
	checker *submit.Checker
	mux     *http.ServeMux
}

// New returns a server. The caller must call Close to end the streams of its pages.
func New(o Options) *Server {
	s := &Server{Options: o, pages: page.New(), checker: submit.NewChecker(), mux: http.NewServeMux()}
	s.handle("GET /{$}", (*visit).jobs)
	s.handle("GET /jobs/{namespace}/{kind}/{name}", (*visit).job)
	s.handle("POST /jobs/{namespace}/{kind}/{name}/{verb}", (*visit).act)
	s.handle("GET /jobs/{namespace}/{kind}/{name}/logs", (*visit).logs)
	s.handle("POST /jobs/{namespace}/{kind}/{name}/tensorboard", (*visit).openBoard)
	s.handle("GET /jobs/{namespace}/{kind}/{name}/logs/stream", (*visit).logStream)
	s.handle("GET /jobs/{namespace}/{kind}/{name}/logs/download", (*visit).logDownload)
	s.handle("GET /act", (*visit).askMany)
	// The page uses POST, because many proxies do not accept a URL with the addresses of 200 jobs.
	s.handle("POST /act/ask", (*visit).askMany)
	s.handle("POST /act", (*visit).actMany)
	s.handle("GET /queues", (*visit).queues)
	s.handle("GET /nodes", (*visit).nodes)
	s.handle("GET /submit", (*visit).submitForm)
	s.handle("POST /submit", (*visit).submit)
	s.handleHistory()
	s.mux.Handle("GET /static/", staticFiles())
	if o.API != nil {
		s.mux.Handle("/api/v1/", o.API)
	}
	s.handle("/", func(s *visit, w http.ResponseWriter, r *http.Request) {
		s.problem(w, r, http.StatusNotFound, "There is no such page", r.URL.Path+" leads nowhere.")
	})
	return s
}

// ServeHTTP implements http.Handler. It serves only requests that Admission admits.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	headers(w.Header())
	caller := s.Admission.Admit(w, r)
	if caller == nil {
		return
	}
	s.mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller)))
}

// headers sets the headers of all responses.
func headers(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	// With no-referrer, browsers send "Origin: null" with the forms of our own pages.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// staticFiles serves the files below /static/. A URL with a query changes with the content of its file, so browsers may
// cache the response.
func staticFiles() http.Handler {
	files := http.StripPrefix("/static/", http.FileServerFS(page.Static()))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "" {
			w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
		}
		files.ServeHTTP(w, r)
	})
}

// content describes the page at an address.
type content struct {
	title, nav string
	// template is the name of the content's template. topics are the topics of changes that affect the content.
	template string
	topics   []string
	// make returns the view model; nil if its object was deleted or the viewer may no longer see the object.
	make func(now time.Time) any
	// timeDependent reports whether the content depends on the current time; nil if it never does.
	timeDependent func() bool
	// former returns links to what remains of a deleted object, such as archived records; nil if there are none.
	former func() []view.Link
	// scope returns a key of the viewer's rights to the objects that make reads: viewers of one address with equal keys
	// see the same content. It is nil if the content is not shared.
	scope func() string
}

// gone returns the problem that replaces content that no longer exists.
func (c *content) gone() page.Problem {
	p := page.Problem{Title: page.Gone, Text: "What this page showed was deleted, or you may no longer see it."}
	if c.former != nil {
		p.Links = append(p.Links, c.former()...)
	}
	p.Links = append(p.Links, view.Link{Text: "All jobs", Href: "/"})
	return p
}

// show responds with a page, or with the stream of its changes if the request asks for events. If the content does not
// exist, it responds with an error page.
func (s *visit) show(w http.ResponseWriter, r *http.Request, c content) {
	if r.Header.Get("Accept") == "text/event-stream" {
		s.stream(w, r, c)
		return
	}
	now := time.Now()
	data := c.make(now)
	if data == nil {
		s.write(w, r, http.StatusNotFound, page.Frame{Title: page.Gone}, "problem", c.gone())
		return
	}
	f := page.Frame{Title: c.title, Page: c.nav, Where: s.Where, Live: c.template != "logs" && c.template != "act", User: s.Name, Notice: s.notice(w, r)}
	s.write(w, r, http.StatusOK, f, c.template, data)
}

// write renders a page and sends it with a status code. name is the name of its template, and data the model.
func (s *visit) write(w http.ResponseWriter, r *http.Request, code int, f page.Frame, name string, data any) {
	f.Where, f.User, f.SignOut = s.Where, s.Name, s.SignOut
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

// problem answers with an error page.
func (s *visit) problem(w http.ResponseWriter, r *http.Request, code int, title, text string) {
	s.write(w, r, code, page.Frame{Title: title}, "problem", page.Problem{Title: title, Text: text})
}

func (s *visit) jobs(w http.ResponseWriter, r *http.Request) {
	f := view.ParseJobFilter(r.URL.Query())
	s.show(w, r, content{title: "Jobs", nav: "jobs", template: "jobs", topics: []string{live.TopicJobs}, scope: s.Cache.JobsScope, make: func(now time.Time) any {
		p := view.Jobs(s.Cache.Jobs(), f, s.Cache.HiddenJobs(), now)
		return &p
	}})
}

func (s *visit) queues(w http.ResponseWriter, r *http.Request) {
	s.show(w, r, content{title: "Queues", nav: "queues", template: "queues", topics: live.TopicsQueues, scope: s.Cache.QueuesScope, make: func(time.Time) any {
		p := view.Queues(s.Cache.Queues())
		return &p
	}})
}

func (s *visit) nodes(w http.ResponseWriter, r *http.Request) {
	by, listed := r.URL.Query().Get("by"), r.URL.Query().Get("node")
	s.show(w, r, content{title: "Nodes", nav: "nodes", template: "nodes", topics: live.TopicsNodes, scope: s.Cache.NodesScope, make: func(time.Time) any {
		p := view.Nodes(s.Cache.Nodes(), by, listed)
		return &p
	}})
}

// errNoJob means that the job in an address does not exist, or that the caller may not see it.
var errNoJob = errors.New("there is no such job, or you may not see it")

// find returns the job in the path of a request; errNoJob if it does not exist or the caller may not see it.
func (s *visit) find(r *http.Request) (*observed.Job, error) {
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
