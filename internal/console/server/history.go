package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/console/page"
	"tensorstack.dev/batch/internal/console/view"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/observed"
	"tensorstack.dev/batch/internal/steer"
)

// History reads the archive on behalf of one caller. An error of type *archive.Refusal reports an invalid request, a
// missing record or a missing right.
type History interface {
	// Jobs returns the jobs that a query selects, newest first.
	Jobs(ctx context.Context, q *archive.JobQuery) (*archive.JobList, error)
	// Job returns a job with all its records except its logs.
	Job(ctx context.Context, uid string) (*archive.JobDetails, error)
	// Logs returns the archived logs of a replica of a job. An empty replica means all replicas.
	Logs(ctx context.Context, uid, replica string) (*archive.LogList, error)
	// Usage returns the usage that a query selects.
	Usage(ctx context.Context, q *archive.UsageQuery) (*archive.UsageList, error)
}

// handleHistory registers the pages of the archive.
func (s *Server) handleHistory() {
	for pattern, serve := range map[string]func(*visit, History, http.ResponseWriter, *http.Request) error{
		"GET " + view.HistoryPath:                          (*visit).history,
		"GET " + view.UsagePath:                            (*visit).usage,
		"GET " + view.UsagePath + ".csv":                   (*visit).usageFile,
		"GET " + view.HistoryPath + "/{uid}":               (*visit).historyJob,
		"GET " + view.HistoryPath + "/{uid}/logs":          (*visit).historyLogs,
		"GET " + view.HistoryPath + "/{uid}/logs/stream":   (*visit).historyLogStream,
		"GET " + view.HistoryPath + "/{uid}/logs/download": (*visit).historyLogFile,
	} {
		s.handle(pattern, func(v *visit, w http.ResponseWriter, r *http.Request) {
			if v.History == nil {
				v.showMissing(w, r, http.StatusNotFound, missingPage{Title: "This console keeps no archive",
					Text: "The t9k-console of an installation keeps the history of jobs if its settings name an archive, and so does the embedded cluster. t9k ui shows the archive of the console that T9K_CONSOLE names:",
					Help: "T9K_CONSOLE=https://console.example.org t9k ui"})
				return
			}
			h, err := v.History(v.Caller)
			if err == nil {
				err = serve(v, h, w, r)
			}
			v.historyProblem(w, r, err)
		})
	}
}

// historyProblem answers a request with err. No part of the response may have been sent. historyProblem does nothing if
// err is nil.
func (s *visit) historyProblem(w http.ResponseWriter, r *http.Request, err error) {
	var refusal *archive.Refusal
	switch {
	case err == nil:
	case errors.As(err, &refusal):
		title := map[int]string{http.StatusNotFound: "No such job", http.StatusForbidden: "You may not see this"}[refusal.Status]
		s.problem(w, r, refusal.Status, cmp.Or(title, "The archive does not answer this"), refusal.Text)
	default:
		s.problem(w, r, http.StatusServiceUnavailable, "The archive cannot be read", err.Error())
	}
}

// missingPage is the page for a job that does not exist, with links to archived jobs of the same name. The console also
// shows it if there is no archive.
type missingPage struct {
	Title, Text, Help string
	Jobs              []view.Link
}

func (s *visit) showMissing(w http.ResponseWriter, r *http.Request, code int, p missingPage) {
	s.write(w, r, code, page.Frame{Title: p.Title, Page: "history"}, "history-missing", &p)
}

// formerJobs is the largest number of archived jobs that the page of a deleted job links to.
const formerJobs = 10

// missing answers a request for a page of a job that does not exist, with links to the archived jobs of that name. tail
// is the part of the request's path after the path of the job's page.
func (s *visit) missing(w http.ResponseWriter, r *http.Request, problem error, tail string) {
	p := missingPage{Title: "No such job", Text: problem.Error()}
	if kind := view.KindOf(r.PathValue("kind")); kind != nil && s.History != nil {
		if h, err := s.History(s.Caller); err == nil {
			// If the archive does not answer, the page has no links.
			if list, err := h.Jobs(r.Context(), &archive.JobQuery{Kind: kind.Name, Namespace: r.PathValue("namespace"), Name: r.PathValue("name"), Limit: formerJobs}); err == nil {
				p.Jobs = view.Links(list.Jobs, tail)
			}
		}
	}
	s.write(w, r, http.StatusNotFound, page.Frame{Title: p.Title}, "history-missing", &p)
}

// showHistory responds with a page of the archive, which has no stream of changes.
func (s *visit) showHistory(w http.ResponseWriter, r *http.Request, title, template string, data any) {
	s.write(w, r, http.StatusOK, page.Frame{Title: title, Page: "history", Notice: s.notice(w, r)}, template, data)
}

func (s *visit) history(h History, w http.ResponseWriter, r *http.Request) error {
	f := view.ParseHistoryFilter(r.URL.Query())
	q, problem := f.Query()
	list, err := h.Jobs(r.Context(), &q)
	if err != nil {
		return err
	}
	p := view.History(f, list, problem)
	s.showHistory(w, r, "History", "history", &p)
	return nil
}

// historyJobPage is the page of an archived job with its manifest.
type historyJobPage struct {
	*view.HistoryJobPage
	Manifest string
	Forms    []view.Link
}

func (s *visit) historyJob(h History, w http.ResponseWriter, r *http.Request) error {
	j, err := h.Job(r.Context(), r.PathValue("uid"))
	if err != nil {
		return err
	}
	p, err := view.HistoryJob(j, r.URL.Query().Get("tab"), time.Now())
	if err != nil {
		return err
	}
	kind, err := kinds.ByName(j.Kind)
	if err != nil {
		return err
	}
	raw := &unstructured.Unstructured{}
	if err := raw.UnmarshalJSON(j.Object); err != nil {
		return fmt.Errorf("reading the manifest of %s: %w", j.Name, err)
	}
	asPods := r.URL.Query().Get("form") == "pods"
	data := &historyJobPage{HistoryJobPage: p, Forms: view.ManifestForms(p.Path, asPods)}
	if p.Tab == "manifest" {
		data.Manifest = manifestText(&kind, raw.DeepCopy(), asPods)
	}
	job, err := observed.New(&kind, raw)
	if err != nil {
		return err
	}
	name := view.CopyName(job, func(name string) bool { return s.Cache.Job(&kind, j.Namespace, name) != nil })
	if p.Rerun, err = asYAML(steer.CopyOf(raw, name)); err != nil {
		return err
	}
	s.showHistory(w, r, j.Name, "history-job", data)
	return nil
}

// logsOf returns the archived logs of the replica that a request selects, or of all replicas if it selects none.
// selected is everything that the request selects; its attempt and its pod do not restrict list.
func logsOf(h History, r *http.Request) (list *archive.LogList, selected view.ArchivedLogs, err error) {
	q := r.URL.Query()
	attempt, _ := strconv.Atoi(q.Get("attempt")) // an invalid number selects all attempts
	selected = view.ArchivedLogs{Replica: q.Get("replica"), Attempt: max(0, attempt), Pod: q.Get("pod")}
	list, err = h.Logs(r.Context(), r.PathValue("uid"), selected.Replica)
	return list, selected, err
}

func (s *visit) historyLogs(h History, w http.ResponseWriter, r *http.Request) error {
	j, err := h.Job(r.Context(), r.PathValue("uid"))
	if err != nil {
		return err
	}
	list, selected, err := logsOf(h, r)
	if err != nil {
		return err
	}
	p := view.HistoryLogs(j, list, selected)
	p.Times = r.URL.Query().Get("times") == "1"
	v := p.Encode()
	p.Download = p.Path + "/logs/download?" + v
	if len(p.Lines) > 0 {
		p.Stream = p.Path + "/logs/stream?" + v
	}
	s.showHistory(w, r, "Logs of "+j.Name, "history-logs", p)
	return nil
}

// historyLogStream sends all archived lines immediately, in the same format as the stream of pod logs.
func (s *visit) historyLogStream(h History, w http.ResponseWriter, r *http.Request) error {
	list, selected, err := logsOf(h, r)
	if err != nil {
		return err
	}
	var all []view.LogLine
	for _, l := range view.HistoryLines(list, &selected) {
		all = append(all, l.Line)
	}
	out := newEvents(w)
	for part := range slices.Chunk(all, maxLinesPerMessage) {
		if out.sendLines(part, "") != nil {
			return nil // the client has disconnected
		}
	}
	_ = out.send("end", []byte("the archive has no more")) // fails only if the client has disconnected
	return nil
}

func (s *visit) historyLogFile(h History, w http.ResponseWriter, r *http.Request) error {
	j, err := h.Job(r.Context(), r.PathValue("uid"))
	if err != nil {
		return err
	}
	list, selected, err := logsOf(h, r)
	if err != nil {
		return err
	}
	attachment(w, "text/plain; charset=utf-8", j.Name+".log")
	for _, l := range view.HistoryLines(list, &selected) {
		if _, err := fmt.Fprintf(w, "%s %s %s\n", l.At.UTC().Format(time.RFC3339Nano), l.Source, l.Text); err != nil {
			return nil //nolint:nilerr // nobody is left to tell
		}
	}
	return nil
}

// attachment sets the headers of a file download.
func attachment(w http.ResponseWriter, kind, name string) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
}

// usageOf returns the usage that a request selects, with the filter, the query and the problem of the filter.
func usageOf(h History, r *http.Request, now time.Time) (f view.UsageFilter, q archive.UsageQuery, list *archive.UsageList, problem string, err error) {
	f = view.ParseUsageFilter(r.URL.Query())
	q, problem = f.Query(now)
	list, err = h.Usage(r.Context(), &q)
	return f, q, list, problem, err
}

func (s *visit) usage(h History, w http.ResponseWriter, r *http.Request) error {
	now := time.Now()
	f, q, list, problem, err := usageOf(h, r, now)
	if err != nil {
		return err
	}
	p := view.Usage(f, &q, list.Usage, problem, now)
	s.showHistory(w, r, "What jobs used", "history-usage", &p)
	return nil
}

func (s *visit) usageFile(h History, w http.ResponseWriter, r *http.Request) error {
	f, q, list, _, err := usageOf(h, r, time.Now())
	if err != nil {
		return err
	}
	attachment(w, "text/csv; charset=utf-8", "usage-by-"+string(q.By)+".csv")
	_ = archive.WriteCSV(w, q.By, view.SumsOf(list.Usage, f.MostUsed(list.Usage))) // fails only if the client has disconnected
	return nil
}
