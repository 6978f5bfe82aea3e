package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"tensorstack.dev/batch/internal/console/live"
	"tensorstack.dev/batch/internal/console/page"
	"tensorstack.dev/batch/internal/console/submit"
	"tensorstack.dev/batch/internal/console/view"
	"tensorstack.dev/batch/internal/manifest"
	"tensorstack.dev/batch/internal/observed"
)

const (
	// submitTime is the timeout of all requests to the API server for one manifest.
	submitTime = 20 * time.Second
	// appearTime is how long the redirect to the page of a new job waits until the cache has the job.
	appearTime = 5 * time.Second
	// renderedPerRole is the largest number of pods per role that are rendered. maxRendered is the approximate limit,
	// in bytes, of all objects rendered for one manifest.
	renderedPerRole = 4
	maxRendered     = 1 << 20
)

// submitForm shows the page for submitting manifests.
func (s *visit) submitForm(w http.ResponseWriter, r *http.Request) {
	s.showSubmit(w, r, http.StatusOK, &view.SubmitInput{Namespace: s.submitTo(r.URL.Query().Get("ns"))})
}

// submitTo returns the namespace for objects whose manifests have none: the chosen one, the namespace of the server, or
// else "default".
func (s *visit) submitTo(chosen string) string {
	for _, namespace := range []string{strings.TrimSpace(chosen), s.Namespace} {
		if namespace != "" {
			return namespace
		}
	}
	return "default"
}

// submit checks a manifest. If there are no errors, it creates the objects of the manifest if the form requests it, and
// otherwise tries to create them in a dry run.
func (s *visit) submit(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 4*submit.MostText)
	if err := r.ParseForm(); err != nil {
		code, title := http.StatusBadRequest, "The form cannot be read"
		if large := new(http.MaxBytesError); errors.As(err, &large) {
			code, title = http.StatusRequestEntityTooLarge, "The manifest is too large"
		}
		s.problem(w, r, code, title, fmt.Sprintf("The console takes up to %d KiB. Submit it with t9k run.", submit.MostText>>10))
		return
	}
	text := strings.ReplaceAll(r.PostForm.Get("manifest"), "\r\n", "\n")
	run := r.PostForm.Get("step") == "run"
	ctx, cancel := context.WithTimeout(r.Context(), submitTime)
	defer cancel()
	draft, err := s.checker.Check(ctx, text, s.submitTo(r.PostForm.Get("ns")))
	if err != nil {
		s.problem(w, r, http.StatusInternalServerError, "The manifest could not be checked", err.Error())
		return
	}
	var created []submit.Created
	if len(draft.Errors) == 0 && len(draft.Objects) > 0 {
		client := submit.Client{Objects: s.Objects, REST: s.Core.RESTClient(), Manager: "t9k"}
		if run {
			created, err = client.Create(ctx, draft)
		} else {
			err = client.Try(ctx, draft)
		}
	}
	switch {
	case len(created) > 0 && err != nil:
		s.problem(w, r, http.StatusConflict, "Only a part was created", fmt.Sprintf("Created: %s. %s", refs(created), err))
	case len(created) > 0:
		s.leaveNotice(w, refs(created)+" created.")
		http.Redirect(w, r, s.pathOf(ctx, created), http.StatusSeeOther)
	default:
		code := http.StatusOK
		if run {
			code = http.StatusConflict
		}
		s.showSubmit(w, r, code, s.input(draft, err))
	}
}

// showSubmit responds with the page, or with its sections as JSON if the script requests them.
func (s *visit) showSubmit(w http.ResponseWriter, r *http.Request, code int, in *view.SubmitInput) {
	in.Jobs = s.Cache.Jobs()
	p := view.Submit(in)
	if r.Header.Get("Accept") != "application/json" {
		s.write(w, r, code, page.Frame{Title: "Submit", Page: "submit", Notice: s.notice(w, r)}, "submit", &p)
		return
	}
	sections, err := s.pages.Sections("submit", &p)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(encode(sections))
}

// input returns the view input for a draft. problem is the error of the dry run or of the creation; nil if there was
// none.
func (s *visit) input(d *submit.Draft, problem error) *view.SubmitInput {
	in := &view.SubmitInput{Text: d.Text, Namespace: d.Namespace, Names: true, Checked: true, Queues: s.Cache.Queues(), Nodes: s.Cache.Nodes(), Errors: diagnostics(d.Errors)}
	if problem != nil {
		in.Problem = problem.Error()
	}
	size := 0
	for i := range d.Objects {
		o := &d.Objects[i]
		in.Warnings = append(in.Warnings, diagnostics(o.Warnings)...)
		submitted := view.Submitted{Ref: manifest.NameOf(o.Object), Namespace: o.Object.GetNamespace(), Line: o.Line, Job: o.Job}
		if submitted.Namespace == "" && o.Kind != nil {
			submitted.Namespace = d.Namespace
		}
		in.Names = in.Names && o.Object.GetNamespace() != ""
		if o.Job != nil && len(d.Errors) == 0 {
			size += render(&submitted, maxRendered-size)
		}
		in.Objects = append(in.Objects, submitted)
	}
	slices.SortStableFunc(in.Warnings, func(a, b view.SubmitDiagnostic) int { return a.Line - b.Line })
	return in
}

// render adds to o the objects that the operator would create for its job, with at most renderedPerRole pods of each
// role, and sets o.More to the number of the other pods. It stops when the text of the objects reaches limit bytes or
// when an object cannot be rendered. It returns the size of the text.
func render(o *view.Submitted, limit int) int {
	size := 0
	o.More = o.Job.Replicas()
	if o.Job.Pause {
		o.More = 0 // a paused job creates nothing yet
	}
	for object, err := range observed.Rendered(o.Job, time.Now(), renderedPerRole) {
		if err != nil || size >= limit {
			break
		}
		text, err := asYAML(object)
		if err != nil {
			break
		}
		size += len(text)
		o.Rendered = append(o.Rendered, view.Rendered{Name: manifest.NameOf(object), Text: strings.TrimSpace(text)})
		if object.GetKind() == "Pod" {
			o.More--
		}
	}
	return size
}

func diagnostics(all []manifest.Diagnostic) []view.SubmitDiagnostic {
	shown := make([]view.SubmitDiagnostic, 0, len(all))
	for _, f := range all {
		shown = append(shown, view.SubmitDiagnostic{Line: f.Line, Path: f.Path, Message: f.Message})
	}
	return shown
}

func refs(all []submit.Created) string {
	names := make([]string, 0, len(all))
	for _, c := range all {
		names = append(names, c.Ref)
	}
	return strings.Join(names, ", ")
}

// pathOf returns the path of the next page: the page Submit if no job was created, and the list of jobs if several
// were. If one job was created, pathOf waits until the cache has the job and returns the path of its page; after
// appearTime, it returns the list of jobs.
func (s *visit) pathOf(ctx context.Context, created []submit.Created) string {
	var jobs []submit.Created
	for _, c := range created {
		if c.Kind != nil {
			jobs = append(jobs, c)
		}
	}
	if len(jobs) == 0 {
		return "/submit"
	}
	j := jobs[0]
	if len(jobs) > 1 {
		for _, other := range jobs {
			if other.Namespace != j.Namespace {
				return "/"
			}
		}
		return "/?ns=" + url.QueryEscape(j.Namespace)
	}
	ctx, cancel := context.WithTimeout(ctx, appearTime)
	defer cancel()
	notices, end := s.Cache.Subscribe(live.JobTopic(j.Kind.Name, j.Namespace, j.Name))
	defer end()
	for s.Cache.Job(j.Kind, j.Namespace, j.Name) == nil {
		select {
		case <-notices:
		case <-ctx.Done():
			return "/?q=" + url.QueryEscape(j.Name)
		}
	}
	return view.JobPath(j.Kind, j.Namespace, j.Name)
}
