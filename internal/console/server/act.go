package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"tensorstack.dev/batch/internal/console/page"
	"tensorstack.dev/batch/internal/console/view"
	"tensorstack.dev/batch/internal/observed"
	"tensorstack.dev/batch/internal/steer"
)

// maxFormSize is the largest size of a form in bytes.
const maxFormSize = 1 << 20

// act performs an action on one job.
func (s *visit) act(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxFormSize)
	j, err := s.find(r)
	if err != nil {
		s.problem(w, r, http.StatusNotFound, "No such job", err.Error())
		return
	}
	if uid := r.PostFormValue("uid"); uid != "" && uid != string(j.GetUID()) {
		s.problem(w, r, http.StatusConflict, "It was not done", another(j))
		return
	}
	notice, to, err := s.do(r.Context(), j, r.PathValue("verb"), r.PostFormValue("name"), r.PostFormValue("replicas"))
	if err != nil {
		s.problem(w, r, http.StatusConflict, "It was not done", err.Error())
		return
	}
	s.leaveNotice(w, notice)
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// another returns the message that j is a later job with the name of the job that the page showed.
func another(j *observed.Job) string {
	return j.Ref() + " is another job than the page showed: that one was deleted, and another one has its name now. Look at it before you act on it."
}

// do performs the action with a verb. name is for rerun and replicas for scale. do returns the message for the user and
// the path of the next page.
func (s *visit) do(ctx context.Context, j *observed.Job, verb, name, replicas string) (notice, to string, err error) {
	path := view.JobPath(j.Kind, j.GetNamespace(), j.GetName())
	action := view.ActionOf(j, verb)
	if action == nil {
		return "", "", fmt.Errorf("%s has no such action in its present state", j.Ref())
	}
	switch verb {
	case "pause", "resume":
		_, err = s.steer.Set(ctx, j, steer.Pause, verb == "pause")
		return j.Ref() + map[bool]string{true: " is pausing.", false: " is resuming."}[verb == "pause"], path, err
	case "debug-on", "debug-off":
		_, err = s.steer.Set(ctx, j, steer.Debug, verb == "debug-on")
		return j.Ref() + map[bool]string{true: " is going into debug mode.", false: " is leaving debug mode."}[verb == "debug-on"], path, err
	case "scale":
		n, err := strconv.Atoi(replicas)
		if err != nil || n < action.Min || n > action.Max {
			return "", "", fmt.Errorf("%q is no number of replicas from %d to %d", replicas, action.Min, action.Max)
		}
		return fmt.Sprintf("%s is scaling to %d replicas.", j.Ref(), n), path, s.steer.Resize(ctx, j, n)
	case "rerun":
		if name == j.GetName() || name == "" {
			return "", "", errors.New("the copy needs another name")
		}
		_, err := s.steer.Copy(ctx, j, name)
		return fmt.Sprintf("%s was created with the manifest of %s.", name, j.GetName()), "/?q=" + name, err
	default:
		return j.Ref() + " is being deleted.", "/", s.steer.Delete(ctx, j)
	}
}

// manyPage is the model of the page that asks the user to confirm an action on several jobs.
type manyPage struct {
	Verb, Title, Effect, Command string
	Jobs                         []view.JobRow
	// Left is the number of selected jobs to which the action is not applied.
	Left int
	// Back is the path of the list with the filter and the page on which the jobs were selected. Filter is its query.
	Back, Filter string
}

// many lists the actions that support several jobs at once.
var many = map[string]bool{"pause": true, "resume": true, "delete": true}

// askMany asks the user to confirm an action on the selected jobs. It leaves out jobs to which the action does not
// apply, and jobs that no longer exist.
func (s *visit) askMany(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxFormSize)
	verb := r.FormValue("verb")
	if !many[verb] {
		s.problem(w, r, http.StatusNotFound, "There is no such action", "Choose pause, resume or delete.")
		return
	}
	p := &manyPage{Verb: verb, Title: strings.ToUpper(verb[:1]) + verb[1:], Filter: r.FormValue("filter")}
	p.Back = listOf(p.Filter)
	in := map[string][]string{}
	var order []string
	jobs, gone := s.named(r.Form["job"])
	p.Left = len(gone)
	for _, j := range jobs {
		a := view.ActionOf(j, verb)
		if a == nil {
			p.Left++
			continue
		}
		p.Effect = a.Effect
		p.Jobs = append(p.Jobs, view.RowOf(j))
		if in[j.GetNamespace()] == nil {
			order = append(order, j.GetNamespace())
		}
		in[j.GetNamespace()] = append(in[j.GetNamespace()], j.Ref())
	}
	for _, namespace := range order {
		p.Command += fmt.Sprintf("t9k %s -n %s %s\n", verb, namespace, strings.Join(in[namespace], " "))
	}
	s.show(w, r, content{title: p.Title, nav: "jobs", template: "act", make: func(time.Time) any { return p }})
}

// actMany performs an action on several jobs.
func (s *visit) actMany(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxFormSize)
	verb := r.PostFormValue("verb")
	if !many[verb] {
		s.problem(w, r, http.StatusNotFound, "There is no such action", "Choose pause, resume or delete.")
		return
	}
	done := 0
	jobs, failed := s.named(r.PostForm["job"])
	for _, j := range jobs {
		if _, _, err := s.do(r.Context(), j, verb, "", ""); err != nil {
			failed = append(failed, err)
			continue
		}
		done++
	}
	back := listOf(r.PostForm.Get("filter"))
	if len(failed) > 0 {
		title := fmt.Sprintf("Done with %d, not with %d", done, len(failed))
		s.write(w, r, http.StatusConflict, page.Frame{Title: title}, "problem",
			page.Problem{Title: title, Text: errors.Join(failed...).Error(), Links: []view.Link{{Text: "Back to the jobs", Href: back}}})
		return
	}
	s.leaveNotice(w, fmt.Sprintf("%s: accepted for %d %s.", verb, done, map[bool]string{true: "job", false: "jobs"}[done == 1]))
	http.Redirect(w, r, back, http.StatusSeeOther)
}

// listOf returns the path of the list of jobs with the filter of a query. If the query is invalid, it returns the path
// of the list of all jobs.
func listOf(query string) string {
	v, err := url.ParseQuery(query)
	if err != nil {
		return "/"
	}
	return view.ParseJobFilter(v).Href()
}

// named returns the jobs at addresses of the form PATH?uid=UID. left holds an error for each job that was deleted or
// is hidden from the user, even if another job has its name now.
func (s *visit) named(addresses []string) (jobs []*observed.Job, left []error) {
	for _, address := range addresses {
		path, query, _ := strings.Cut(address, "?")
		j := s.at(path)
		uid := strings.TrimPrefix(query, "uid=")
		switch {
		case j == nil:
			left = append(left, fmt.Errorf("%s: %w", path, errNoJob))
		case uid != "" && uid != string(j.GetUID()):
			left = append(left, errors.New(another(j)))
		default:
			jobs = append(jobs, j)
		}
	}
	return jobs, left
}

// at returns the job whose page has the given path; nil if there is no such job or the caller may not see it.
func (s *visit) at(path string) *observed.Job {
	parts := strings.Split(path, "/") // "", "jobs", NAMESPACE, KIND, NAME
	if len(parts) != 5 {
		return nil
	}
	kind := view.KindOf(parts[3])
	if kind == nil {
		return nil
	}
	return s.Cache.Job(kind, parts[2], parts[4])
}
