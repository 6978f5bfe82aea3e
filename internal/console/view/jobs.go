package view

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
)

// PageSize is the number of jobs on one page of the list.
const PageSize = 200

// JobFilter selects and sorts jobs. The URL of the list contains it. An empty field does not restrict the selection.
// Label is a label selector. Text is a part of the name, namespace, kind, queue, user or Why, compared without regard
// to case.
type JobFilter struct {
	Namespace, Kind, Queue, User, Label, Text string
	// Phases are the selected phases; if empty, all phases are selected.
	Phases []string
	// Sort is the key of a column, with a minus sign for descending order. If it is empty, the newest jobs come first.
	Sort string
	// Page counts from 1.
	Page int
}

// ParseJobFilter reads a filter from the values of a URL. It ignores an invalid page or sort key.
func ParseJobFilter(v url.Values) JobFilter {
	f := JobFilter{Namespace: v.Get("ns"), Kind: v.Get("kind"), Queue: v.Get("queue"), User: v.Get("user"), Label: v.Get("label"),
		Text: strings.TrimSpace(v.Get("q")), Sort: v.Get("sort"), Page: 1}
	for _, p := range v["phase"] {
		if p != "" && !slices.Contains(f.Phases, p) {
			f.Phases = append(f.Phases, p)
		}
	}
	if n, err := strconv.Atoi(v.Get("page")); err == nil && n > 1 {
		f.Page = n
	}
	if columnOf(strings.TrimPrefix(f.Sort, "-")) == nil {
		f.Sort = ""
	}
	return f
}

// values returns the filter as values of a URL.
func (f JobFilter) values() url.Values {
	v := url.Values{}
	for key, value := range map[string]string{"ns": f.Namespace, "kind": f.Kind, "queue": f.Queue, "user": f.User, "label": f.Label, "q": f.Text, "sort": f.Sort} {
		if value != "" {
			v.Set(key, value)
		}
	}
	for _, p := range f.Phases {
		v.Add("phase", p)
	}
	if f.Page > 1 {
		v.Set("page", strconv.Itoa(f.Page))
	}
	return v
}

// Query returns the filter as the query of a URL.
func (f JobFilter) Query() string { return f.values().Encode() }

// Href returns the path of the list with this filter.
func (f JobFilter) Href() string {
	if q := f.Query(); q != "" {
		return "/?" + q
	}
	return "/"
}

// Narrow reports whether the filter can hide jobs.
func (f JobFilter) Narrow() bool {
	f.Sort, f.Page = "", 1
	return len(f.values()) > 0
}

// column is a column by which jobs can be sorted.
type column struct {
	key, title string
	// num is true for a column of numbers and times.
	num     bool
	compare func(a, b *JobRow, now time.Time) int
}

var columns = []column{
	{"name", "Job", false, func(a, b *JobRow, _ time.Time) int { return strings.Compare(a.Name, b.Name) }},
	{"ns", "Namespace", false, func(a, b *JobRow, _ time.Time) int { return strings.Compare(a.Namespace, b.Namespace) }},
	{"phase", "Phase", false, func(a, b *JobRow, _ time.Time) int {
		return cmp.Compare(slices.Index(phases, a.Phase), slices.Index(phases, b.Phase))
	}},
	{"ready", "Replicas", true, func(a, b *JobRow, _ time.Time) int {
		return cmp.Or(cmp.Compare(a.Total, b.Total), cmp.Compare(a.Running, b.Running))
	}},
	{"restarts", "Restarts", true, func(a, b *JobRow, _ time.Time) int { return cmp.Compare(a.Restarts, b.Restarts) }},
	{"queue", "Queue", false, func(a, b *JobRow, _ time.Time) int { return strings.Compare(a.Queue, b.Queue) }},
	{"user", "User", false, func(a, b *JobRow, _ time.Time) int { return strings.Compare(a.User, b.User) }},
	{"waited", "Waited", true, func(a, b *JobRow, now time.Time) int { return cmp.Compare(a.Waited(now), b.Waited(now)) }},
	{"ran", "Ran", true, func(a, b *JobRow, now time.Time) int { return cmp.Compare(a.Ran.At(now), b.Ran.At(now)) }},
	{"age", "Age", true, func(a, b *JobRow, _ time.Time) int { return b.Created.Compare(a.Created) }},
}

// phases lists the phases of jobs in descending order of urgency.
var phases = []string{
	string(batch.JobFailed), string(batch.JobUnknown), "New", string(batch.JobPending), string(batch.JobResuming), string(batch.JobPaused),
	string(batch.JobRunning), string(batch.JobSucceeded),
}

func columnOf(key string) *column {
	i := slices.IndexFunc(columns, func(c column) bool { return c.key == key })
	if i < 0 {
		return nil
	}
	return &columns[i]
}

// Link is a hyperlink.
type Link struct {
	Text, Href string
	// Current is true if the link points to the current view.
	Current bool
}

// Column is the header of a column. Its link sorts the jobs by the column.
type Column struct {
	Link
	Key string
	// Num is true for a column of numbers and times.
	Num bool
	// Order is "ascending", "descending" or empty.
	Order string
}

// PhaseCount is the number of jobs in a phase; in all phases if Phase is empty.
type PhaseCount struct {
	Link
	Phase string
	Tone  Tone
	Count int
}

// JobsPage shows one page of the filtered list of jobs.
type JobsPage struct {
	Filter  JobFilter
	Counts  []PhaseCount
	Columns []Column
	Rows    []JobRow
	// Found is the number of jobs that the filter selects, and All the number of all jobs. Counts ignores the phases of
	// the filter.
	Found, All int
	// First is the number of the first row, counted from 1. Prev and Next are the paths of the previous and the next
	// page; empty if there is none.
	First      int
	Prev, Next string
	// Namespaces, Kinds, Queues and Users are the values that the filter offers.
	Namespaces, Kinds, Queues, Users []string
	Hidden                           []Hidden
	// Problem explains why the filter cannot be applied, so that it selects no job; empty if it can.
	Problem string
}

// Jobs returns the page of the jobs that a filter selects. If f.Page is too large, it returns the last page, and the
// Filter of the result has the number of the last page.
func Jobs(rows []JobRow, f JobFilter, hidden []Hidden, now time.Time) JobsPage {
	p := JobsPage{Filter: f, All: len(rows), Hidden: hidden}
	selector, err := labels.Parse(f.Label)
	if err != nil {
		p.Problem, selector = "The label selector cannot be read: write it like team=vision or team in (a, b).", labels.Nothing()
	}
	p.offer(rows)
	count := map[string]int{}
	var found []*JobRow
	for i := range rows {
		r := &rows[i]
		if !f.selects(r, selector) {
			continue
		}
		count[r.Phase]++
		if len(f.Phases) == 0 || slices.Contains(f.Phases, r.Phase) {
			found = append(found, r)
		}
	}
	p.Found = len(found)
	p.count(count)
	p.sort(found, now)
	p.cut(found)
	return p
}

// selects reports whether the filter selects a job, regardless of its phase.
func (f *JobFilter) selects(r *JobRow, selector labels.Selector) bool {
	switch {
	case f.Namespace != "" && f.Namespace != r.Namespace, f.Kind != "" && f.Kind != r.Kind, f.Queue != "" && f.Queue != r.Queue,
		f.User != "" && f.User != r.User, !selector.Empty() && !selector.Matches(labels.Set(r.Labels)):
		return false
	case f.Text == "":
		return true
	}
	text := strings.ToLower(f.Text)
	for _, s := range []string{r.Name, r.Namespace, r.Kind, r.Queue, r.User, r.Why} {
		if strings.Contains(strings.ToLower(s), text) {
			return true
		}
	}
	return false
}

// offer collects the values that the filter offers.
func (p *JobsPage) offer(rows []JobRow) {
	namespaces, queues, users := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i := range rows {
		namespaces[rows[i].Namespace], queues[rows[i].Queue], users[rows[i].User] = true, true, true
	}
	p.Namespaces, p.Queues, p.Users = choices(namespaces, p.Filter.Namespace), choices(queues, p.Filter.Queue), choices(users, p.Filter.User)
	for i := range kinds.All {
		p.Kinds = append(p.Kinds, kinds.All[i].Name)
	}
}

// choices returns the keys of a set and the chosen value, sorted and without empty ones. It modifies the set.
func choices(set map[string]bool, chosen string) []string {
	set[chosen] = true
	delete(set, "")
	all := make([]string, 0, len(set))
	for s := range set {
		all = append(all, s)
	}
	slices.Sort(all)
	return all
}

func (p *JobsPage) count(count map[string]int) {
	all := 0
	for _, n := range count {
		all += n
	}
	f := p.Filter
	f.Phases, f.Page = nil, 1
	p.Counts = []PhaseCount{{Link: Link{"All", f.Href(), len(p.Filter.Phases) == 0}, Count: all}}
	for _, phase := range phases {
		chosen := slices.Contains(p.Filter.Phases, phase)
		if count[phase] == 0 && !chosen {
			continue
		}
		f.Phases = []string{phase}
		p.Counts = append(p.Counts, PhaseCount{Link: Link{phase, f.Href(), chosen}, Phase: phase, Tone: toneOf(phase), Count: count[phase]})
	}
}

// sort sorts the rows and sets the headers of the columns.
func (p *JobsPage) sort(found []*JobRow, now time.Time) {
	key, descending := strings.CutPrefix(p.Filter.Sort, "-")
	c := columnOf(cmp.Or(key, "age"))
	slices.SortFunc(found, func(a, b *JobRow) int {
		order := c.compare(a, b, now)
		if descending {
			order = -order
		}
		return cmp.Or(order, b.Created.Compare(a.Created), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.Kind, b.Kind), strings.Compare(a.UID, b.UID))
	})
	f := p.Filter
	f.Page = 1
	for i := range columns {
		head := Column{Key: columns[i].key, Num: columns[i].num}
		f.Sort = columns[i].key
		if columns[i].key == cmp.Or(key, "age") {
			head.Order = "ascending"
			if descending {
				head.Order = "descending"
			} else {
				f.Sort = "-" + columns[i].key
			}
		}
		head.Link = Link{Text: columns[i].title, Href: f.Href(), Current: head.Order != ""}
		p.Columns = append(p.Columns, head)
	}
}

// cut adds the rows of the selected page, and the links to its neighbours. If there is no such page, it selects the
// last one.
func (p *JobsPage) cut(found []*JobRow) {
	pages := max(1, (len(found)+PageSize-1)/PageSize)
	p.Filter.Page = max(1, min(p.Filter.Page, pages))
	first := (p.Filter.Page - 1) * PageSize
	for _, r := range found[first:min(first+PageSize, len(found))] {
		p.Rows = append(p.Rows, *r)
	}
	p.First = first + 1
	f := p.Filter
	if f.Page < pages {
		f.Page++
		p.Next = f.Href()
	}
	if f = p.Filter; f.Page > 1 {
		f.Page--
		p.Prev = f.Href()
	}
}

// Range returns as text which rows are displayed and how many jobs the filter selects. If these jobs fit on one page,
// it returns their number and the number of all jobs. It is empty if the page shows all jobs or none.
func (p *JobsPage) Range() string {
	switch {
	case p.Found == 0, p.Found == p.All && p.Found <= PageSize: // the total is shown above
		return ""
	case p.Found <= PageSize:
		return fmt.Sprintf("%d of %s jobs", p.Found, Thousands(p.All))
	}
	return fmt.Sprintf("%s–%s of %s jobs", Thousands(p.First), Thousands(p.First+len(p.Rows)-1), Thousands(p.Found))
}
