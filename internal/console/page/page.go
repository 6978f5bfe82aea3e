// Package page renders the console's view models as HTML: whole pages, and the sections that are pushed to open pages.
// The stylesheet and the script are separate files, so that the Content-Security-Policy can forbid inline styles and
// scripts. Start reading at Renderer.
package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"strings"
	"sync"
	"time"

	"tensorstack.dev/batch/internal/console/view"
	"tensorstack.dev/batch/internal/escape"
	"tensorstack.dev/batch/internal/observed"
)

//go:embed templates/*.html
var templates embed.FS

//go:embed static
var static embed.FS

// Static returns the files under /static/.
func Static() fs.FS {
	files, err := fs.Sub(static, "static")
	if err != nil {
		panic(err) // the directory is part of the program
	}
	return files
}

// Frame is the part of a page that surrounds its content.
type Frame struct {
	Title string
	// Page is the name of the page in the navigation.
	Page string
	// Where is the name of the cluster. User is the name of the viewer; empty if the console has only one user.
	Where, User string
	// Notice is a message about the last action of the user; empty if there is none.
	Notice string
	// Live is true if the address of the page also serves a stream of changes.
	Live bool
	// SignOut is true if the user can sign out. Bare is true for a page that is shown to users who are not signed in.
	SignOut, Bare bool
}

// Problem is the model of the template of the same name, an error page.
type Problem struct {
	Title, Text string
	// Links are shown below the text; without any, the page links to the list of jobs. Apart makes the links open in
	// new tabs.
	Links []view.Link
	Apart bool
}

// Section is a part of a page that is replaced as a whole when it changes.
type Section struct {
	ID   string
	HTML string
	// Rows are parts of the section that can be replaced individually while they are the same rows in the same order.
	Rows []Section
}

// Renderer renders pages. It is safe for concurrent use.
type Renderer struct {
	sets sync.Pool
	// version is a hash of the stylesheet and the script.
	version string
}

// set is a set of templates with the current time for ages.
type set struct {
	*template.Template
	now time.Time
}

// New returns a renderer with the templates of all pages. It panics if a template cannot be parsed.
func New() *Renderer {
	r := &Renderer{version: version()}
	first := r.parse()
	r.sets.Put(first)
	r.sets.New = func() any { return r.parse() }
	return r
}

func version() string {
	sum := sha256.New()
	for _, name := range []string{"app.css", "app.js"} {
		data, err := static.ReadFile("static/" + name)
		if err != nil {
			panic(err) // the file is part of the program
		}
		sum.Write(data)
	}
	return hex.EncodeToString(sum.Sum(nil))[:12]
}

// pair holds two values for a template that takes one argument.
type pair struct{ A, B any }

func (r *Renderer) parse() *set {
	s := &set{}
	s.Template = template.Must(template.New("").Funcs(template.FuncMap{
		"version": func() string { return r.version },
		"pair":    func(a, b any) pair { return pair{a, b} },
		"inc":     func(n int32) int32 { return n + 1 },
		"age":     s.since,
		"ago":     func(t time.Time) template.HTML { return s.since(t) + " ago" },
		"clock":   func(t time.Time) string { return t.UTC().Format("15:04:05") },
		"ran": func(ran observed.RunTime) template.HTML {
			if ran.Since.IsZero() {
				return settled(ran.Before)
			}
			return s.since(ran.Since.Add(-ran.Before))
		},
		"waited": func(row view.JobRow) template.HTML {
			if row.Ended.IsZero() && row.Ran.Since.IsZero() {
				return s.since(row.Created.Add(row.Ran.Before))
			}
			return settled(waited(&row))
		},
		"stamp": stamp,
		"milli": func(t time.Time) string {
			if t.IsZero() {
				return ""
			}
			return t.UTC().Format("2006-01-02 15:04:05.000")
		},
		"minute":  func(t time.Time) string { return strings.TrimSuffix(stamp(t), t.UTC().Format(":05")) },
		"settled": settled,
		"notes":   view.HiddenNotes,
		"colour":  colour, "thousands": view.Thousands,
		"cells": cells,
	}).ParseFS(templates, "templates/*.html"))
	return s
}

// waited returns how long a job that runs or has finished has waited so far. This time does not grow until the job
// waits again.
func waited(row *view.JobRow) time.Duration {
	if row.Ended.IsZero() {
		return row.Waited(row.Ran.Since)
	}
	return row.Waited(row.Ended)
}

// since returns an element with the age of a time, which the script keeps up to date; empty if t is zero. If s.now is
// zero, the text of the element is empty, so that a pushed section changes only if the time t changes.
func (s *set) since(t time.Time) template.HTML {
	if t.IsZero() {
		return ""
	}
	text := ""
	if !s.now.IsZero() {
		text = view.Age(s.now.Sub(t))
	}
	at := t.UTC().Format(time.RFC3339)
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s">%s</time>`, at, at, text)) //nolint:gosec // of times alone
}

// stamp returns a past time in UTC with its date; empty if the time is not known.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

// settled returns a duration that no longer changes; a dash if it is shorter than a second.
func settled(d time.Duration) template.HTML {
	if d < time.Second {
		return `<span class="nil">–</span>`
	}
	return template.HTML(template.HTMLEscapeString(view.Age(d))) //nolint:gosec // escaped
}

// colour returns the CSS class of the colour with a number; negative numbers share one class.
func colour(n int) string {
	if n < 0 {
		return "kx"
	}
	return fmt.Sprintf("k%d", n)
}

// cells returns the positions, in percent, of the lines between n units.
func cells(n int) []float64 {
	var all []float64
	for i := 1; i < n; i++ {
		all = append(all, 100*float64(i)/float64(n))
	}
	return all
}

// execute renders the template with a name. Ages are relative to now; if now is zero, the script fills them in.
func (r *Renderer) execute(name string, data any, now time.Time) (string, error) {
	s, _ := r.sets.Get().(*set)
	defer r.sets.Put(s)
	s.now = now
	var b bytes.Buffer
	if err := s.ExecuteTemplate(&b, name, data); err != nil {
		return "", fmt.Errorf("rendering %s: %w", name, err)
	}
	// Names, messages and logs can contain any character. The page's own markup contains none of the characters that
	// Directed escapes.
	return escape.Directed(b.String()), nil
}

// Page renders a whole page. name is the name of the content's template, data is its model, and ages are relative to
// now.
func (r *Renderer) Page(f Frame, name string, data any, now time.Time) (string, error) {
	content, err := r.execute(name, data, now)
	if err != nil {
		return "", err
	}
	layout := struct {
		Frame
		Nav     []view.Link
		Content template.HTML
	}{Frame: f, Content: template.HTML(content)} //nolint:gosec // rendered by a template above
	for _, l := range []view.Link{{Text: "Jobs", Href: "/"}, {Text: "Queues", Href: "/queues"}, {Text: "Nodes", Href: "/nodes"}, {Text: "Submit", Href: "/submit"}, {Text: "History", Href: view.HistoryPath}} {
		l.Current = strings.EqualFold(l.Text, f.Page)
		layout.Nav = append(layout.Nav, l)
	}
	return r.execute("layout", layout, now)
}

// Gone is the title of the problem that replaces a page whose object no longer exists.
const Gone = "It is gone"

// Instead renders the section that replaces the whole content of a page with a problem.
func (r *Renderer) Instead(p Problem) (Section, error) {
	html, err := r.execute("problem", p, time.Time{})
	return Section{ID: "main", HTML: `<main id="main">` + html + `</main>`}, err
}

// sections names the templates of the sections of pages, by the page's template. The rows of the page jobs are one more
// section.
var sections = map[string][]string{
	"jobs": {"jobs-counts", "jobs-notes", "jobs-pager"}, "job": {"job-head", "job-actions", "job-timeline", "job-tab"},
	"queues": {"queues-all"}, "nodes": {"nodes-all"}, "submit": {"submit-numbers", "submit-result"},
}

// Sections renders the parts of a page that change; nil if the page has none. name is the name of the page's template,
// and data is its model. The script fills in the ages.
func (r *Renderer) Sections(name string, data any) ([]Section, error) {
	var all []Section
	for _, part := range sections[name] {
		html, err := r.execute(part, data, time.Time{})
		if err != nil {
			return nil, err
		}
		all = append(all, Section{ID: part, HTML: html})
	}
	if jobs, ok := data.(*view.JobsPage); ok {
		rows := Section{ID: "rows"}
		var b strings.Builder
		b.WriteString(`<tbody id="rows">`)
		for i := range jobs.Rows {
			html, err := r.execute("jobs-row", &jobs.Rows[i], time.Time{})
			if err != nil {
				return nil, err
			}
			rows.Rows = append(rows.Rows, Section{ID: jobs.Rows[i].ID(), HTML: html})
			b.WriteString(html)
		}
		rows.HTML = b.String() + "</tbody>"
		all = append(all, rows)
	}
	return all, nil
}
