package page

import (
	"html"
	"io/fs"
	"maps"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"tensorstack.dev/batch/internal/console/view"
	"tensorstack.dev/batch/internal/observed"
	"tensorstack.dev/batch/internal/testing/golden"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// hostile holds texts that must not have any effect on a page.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, `javascript:alert(1)`, `{{.}}`, `</title></textarea></style>`, `<!--`, `&lt;b&gt;`,
	"\x1b[31mred\x1b[0m", "\x1b]0;title\a", "a\rb", "nul\x00", "\u009b31m", "\u202egpj.exe", "\u2066a\u2069", "\u200f\u061c", "\xff\xfe", "]]>",
}

func row(text string) view.JobRow {
	return view.JobRow{UID: "1", Path: "/jobs/ns/genericjob/mnist", Kind: "GenericJob", Namespace: text, Name: text, Ref: text, Phase: "Running", Tone: view.Busy, Why: text,
		Running: 1, Total: 2, Share: 50, Restarts: 1, Queue: text, User: text, Created: noon.Add(-time.Hour), Ran: observed.RunTime{Before: time.Minute, Since: noon.Add(-time.Minute)}}
}

type jobPage struct {
	view.JobPage
	Manifest string
	Forms    []view.Link
}

type historyJobPage struct {
	*view.HistoryJobPage
	Manifest string
	Forms    []view.Link
}

// past returns models of the archive's pages, with the keys and texts that models describes. r is the row of the
// archived job, and job is its page.
func past(text string, r view.JobRow, job view.JobPage) map[string]any {
	r.Path = "/history/uid"
	list := &view.HistoryPage{Tabs: []view.Link{{Text: "Jobs", Href: "/history", Current: true}}, About: text, Filter: view.HistoryFilter{Text: text, Namespace: text, Queue: text, User: text, Outcome: text, From: text, To: text, Gone: true},
		Outcomes: []string{text, "Deleted"}, Rows: []view.HistoryRow{{JobRow: r, Gone: noon, Took: time.Hour}, {JobRow: r, Took: time.Millisecond}}, First: "/history", Next: "/history?after=1.uid", Problem: text}
	attempts := &historyJobPage{HistoryJobPage: &view.HistoryJobPage{JobPage: job, Live: "/jobs/ns/genericjob/mnist", Rerun: text, MoreAttempts: 2,
		Attempts: []view.AttemptRow{{Replica: text, Number: 2, Node: text, End: text, Tone: view.Bad, Scheduled: noon, Begun: noon, Ended: noon.Add(time.Minute), Ran: time.Minute, Logs: "/history/uid/logs?replica=w-0&attempt=2"}}}}
	attempts.JobRow, attempts.Tab = r, "attempts"
	empty := &historyJobPage{HistoryJobPage: &view.HistoryJobPage{JobPage: view.JobPage{JobRow: r, Tab: "attempts"}}}
	key := view.UsageKey{Link: view.Link{Text: text, Href: "/history?queue=q"}, Hours: "12.5", Share: 40}
	return map[string]any{
		"history": list, "history empty": &view.HistoryPage{Tabs: []view.Link{{Text: text, Href: "/history"}}}, "history none": &view.HistoryPage{Filter: view.HistoryFilter{Text: text}},
		"history-job": attempts, "history-job empty": empty,
		"history-logs": &view.HistoryLogsPage{JobRow: r, LogView: view.LogView{Command: text, State: text, Stream: "/history/uid/logs/stream",
			Lines: []view.LogLine{{Replica: text, Text: text, Error: true}}}, Replicas: []string{text}, ArchivedLogs: view.ArchivedLogs{Replica: text, Attempt: 2, Pod: text}, Attempts: []int{1, 2}, Live: "/jobs/ns/genericjob/mnist/logs"},
		"history-usage": &view.UsagePage{Bys: []view.Link{{Text: "by queue", Href: "/history/usage", Current: true}}, Spans: []view.Link{{Text: "7 days", Href: "/history/usage?from=2026-01-01"}}, By: text,
			Filter: view.UsageFilter{By: "queue", Namespace: text, From: text}, Resources: []string{text}, Resource: text, Unit: text, Total: "31", CSV: "/history/usage.csv", Problem: text,
			Bars: []view.UsageBar{{X: 1, W: 2, Parts: []view.UsagePart{{Y: 40, H: 60, Title: text}}}}, Ticks: []view.Tick{{X: 2, Text: "1 Jan"}}, Lines: []view.UsageTick{{Y: 50, Text: "20"}},
			Keys: []view.UsageKey{key, {Hours: "1", Colour: -1}}},
		"history-usage empty": &view.UsagePage{Resource: text, Unit: text, Total: "0"},
		"history-missing": &struct {
			Title, Text, Help string
			Jobs              []view.Link
		}{text, text, text, []view.Link{{Text: text, Href: "/history/uid"}}},
	}
}

// models returns models of all pages. A key is the name of the page's template or, for a variant, that name, a space
// and the name of the variant. All texts that come from users or objects are equal to text, except those on whose
// values a page depends.
func models(text string) map[string]any {
	r := row(text)
	jobs := view.Jobs([]view.JobRow{r}, view.JobFilter{Text: "", Page: 1}, []view.Hidden{{What: text}}, noon)
	jobs.Kinds = []string{"GenericJob"} // the pages do not depend on the number of kinds
	none := map[string]view.JobsPage{
		"jobs none": view.Jobs(nil, view.JobFilter{Page: 1}, nil, noon), "jobs hidden": view.Jobs(nil, view.JobFilter{Page: 1}, []view.Hidden{{What: text}}, noon),
		"jobs unmatched": view.Jobs([]view.JobRow{r}, view.JobFilter{Queue: "another", Page: 1}, []view.Hidden{{What: text}}, noon),
	}
	job := jobPage{Manifest: text, JobPage: view.JobPage{JobRow: r, Tab: "replicas", Facts: []view.Fact{{Name: text, Text: text}, {Name: "Created", At: noon.Add(-time.Hour)}},
		Roles:    []view.RoleRow{{Role: text, Counts: text, Image: text, Command: text}},
		Replicas: []view.ReplicaRow{{Name: text, Phase: text, Node: text, Detail: text, Created: noon, Logs: "/jobs/ns/genericjob/mnist/logs?replica=w-0"}},
		Earlier:  []view.AttemptRow{{Replica: text, Number: 1, Node: text, End: text, Tone: view.Bad, Ended: noon}}, MoreEarlier: 3,
		Timeline: view.Timeline{Begin: noon, Lanes: []view.Lane{{Label: text, Segments: []view.Segment{{X: 1, W: 20, State: "failed", Title: text, Text: text}}}}, States: []string{"failed"}},
		Actions:  []view.Action{{Verb: "pause", Title: "Pause", Effect: text, Command: text}, {Verb: "rerun", Title: "Run again", Effect: text, Command: text, Name: text}}}}
	events := job
	events.Tab, events.Events = "events", []view.EventRow{{At: noon, Reason: text, Pod: text, Others: 3, Message: text, Count: 2}}
	events.MoreEvents = 7
	manifest := job
	manifest.Tab, manifest.Forms = "manifest", view.ManifestForms("/jobs/ns/genericjob/mnist", true)
	explain := job
	explain.Tab, explain.Waits = "explain", []observed.Wait{{Who: text, For: text, Why: text}}
	conditions := job
	conditions.Tab, conditions.Conditions = "conditions", []view.ConditionRow{{Type: text, Status: text, Reason: text, Message: text, Since: noon}}
	diagnostic := view.DiagnosticCard{SubmitDiagnostic: view.SubmitDiagnostic{Line: 2, Path: text, Message: text}, Source: []view.SourceLine{{N: 1, Text: text}, {N: 2, Text: text, Bad: true}}}
	all := past(text, r, job.JobPage)
	for name, p := range none {
		p.Kinds, p.Namespaces = nil, []string{text}
		all[name] = &p
	}
	maps.Copy(all, map[string]any{
		"jobs": &jobs, "job": &job, "job events": &events, "job manifest": &manifest, "job explain": &explain, "job conditions": &conditions,
		"logs": &view.LogsPage{JobRow: r, LogView: view.LogView{Command: text, State: text, Times: true, Stream: "/jobs/ns/genericjob/mnist/logs/stream",
			Lines: []view.LogLine{{Replica: text, Text: text, Error: true, At: noon.UnixMilli()}, {Text: text}}}, Filter: view.LogFilter{Role: "ps", Ranks: "1", State: "failed", Problem: text}, Roles: []string{"ps", text}, Many: true,
			Note: text, Attempts: []view.Link{{Text: text, Href: "/history/uid/logs?attempt=1"}, {Text: text}}, Earlier: text, Kept: "/history/uid/logs"},
		"queues": &view.QueuesPage{Queues: []view.QueueCard{{ID: "queue-q", Name: text, Notes: []string{text}, Dominant: text, Bars: []view.Bar{{Name: text, Text: text, Share: 40}, {Name: text, Share: -1}},
			Running: []view.GroupRow{{Name: text, Uses: text, Since: noon}}, Waiting: []view.WaiterRow{{Place: 1, Name: text, Why: text, Created: noon}}}}},
		"submit": &view.SubmitPage{Text: text, Namespace: text, Namespaces: []string{text}, Rows: 2, Numbers: []view.NumberRun{{Text: "1\n"}, {Text: "2\n", Bad: true}}, Checked: true,
			Problem: text, Summary: text, Hint: text, MoreErrors: 1, Errors: []view.DiagnosticCard{diagnostic}},
		"submit valid": &view.SubmitPage{Text: text, Namespace: text, Checked: true, Summary: text, Warnings: []view.DiagnosticCard{diagnostic}, Valid: true, Title: "Run 1 job", Effect: text, Command: text,
			Objects: []view.SubmitCard{{Ref: text, Namespace: text, Line: 1, Replicas: text, More: 3, Rendered: []view.Rendered{{Name: text, Text: text}},
				Room: &view.Room{Queue: text, Href: "/queues#queue-q", Verdict: text, Why: text, Tone: view.Wait, Rows: []view.RoomRow{{Name: text, Needs: text, Left: text, Free: text}, {Name: text, Needs: text, Short: true}}}}}},
		"act": &struct {
			Verb, Title, Effect, Command, Back, Filter string
			Jobs                                       []view.JobRow
			Left                                       int
		}{"delete", "Delete", text, text, "/?ns=ns", text, []view.JobRow{r}, 2},
		"submit empty": &view.SubmitPage{Namespace: text, Rows: 2},
		"nodes": &view.NodesPage{Owners: []view.Owner{{Name: text}}, Nodes: []view.NodeTile{{ID: "node-n", Name: text, State: text,
			Meters: []view.Meter{{Name: text, Text: text, Cells: 4, Shares: []view.Share{{X: 0, W: 25, Title: text}}}},
			Pods:   2, Href: "/nodes#node-n", Users: []view.NodeUser{{Name: text, Href: "/jobs/ns/genericjob/mnist", Queue: text, User: text, Requests: text, Pods: 1}, {Name: text, Requests: text, Pods: 2}}},
			{ID: "node-m", Name: text, State: text, Pods: 1, Href: "/nodes?node=m#node-m"}}},
	})
	return all
}

// shared returns one renderer for all tests, because parsing the templates takes longer than rendering a page.
var shared = sync.OnceValue(New)

func render(t *testing.T, name string, model any) string {
	t.Helper()
	content, _, _ := strings.Cut(name, " ")
	text, err := shared().Page(Frame{Title: "T", Page: content, Where: "cluster"}, content, model, noon)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(text, shared().version, "VERSION")
}

func TestPagesEqualTheirGoldenFiles(t *testing.T) {
	for name, model := range models("mnist") {
		t.Run(name, func(t *testing.T) {
			golden.Compare(t, "testdata/"+strings.ReplaceAll(name, " ", "-")+".html", render(t, name, model))
		})
	}
}

var (
	tag    = regexp.MustCompile(`<[a-zA-Z/!][^>]*>`)
	inline = regexp.MustCompile(`(?i)\s(on[a-z]+|style)\s*=|<style|<script(?: [^>]*)?>[^<]|javascript:|<!--`)
)

// TestHostileTextsAreShownAsText verifies that no text adds a tag, an event handler, an inline style or a control
// character to a page, and that pages show a script as text. It compares the number of tags with that of the same page
// with harmless texts.
func TestHostileTextsAreShownAsText(t *testing.T) {
	harmless := models("mnist")
	for _, text := range hostile {
		for name, model := range models(text) {
			got := render(t, name, model)
			if a, b := len(tag.FindAllString(got, -1)), len(tag.FindAllString(render(t, name, harmless[name]), -1)); a != b {
				t.Errorf("%s with %q has %d tags, and %d with a harmless text", name, text, a, b)
			}
			for _, element := range tag.FindAllString(got, -1) {
				// Attribute values are quoted, so the rest is markup.
				if m := inline.FindString(quoted.ReplaceAllString(element, `""`)); m != "" {
					t.Errorf("%s with %q has %q", name, text, element)
				}
			}
			if i := strings.IndexFunc(got, func(r rune) bool {
				return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r)
			}); i >= 0 {
				t.Errorf("%s with %q has a control character: %q", name, text, got[max(0, i-20):i+10])
			}
			if strings.HasPrefix(text, "<script>") && !strings.Contains(html.UnescapeString(got), text) {
				t.Errorf("%s does not show %q", name, text)
			}
		}
	}
}

var quoted = regexp.MustCompile(`"[^"]*"`)

// TestNothingIsInline verifies that pages have no inline scripts or styles, which the Content-Security-Policy forbids,
// and that the static files name no other hosts and evaluate no texts as code.
func TestNothingIsInline(t *testing.T) {
	for name, model := range models("mnist") {
		if m := inline.FindString(render(t, name, model)); m != "" {
			t.Errorf("%s has %q", name, m)
		}
	}
	files, err := fs.Glob(Static(), "*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		data, err := fs.ReadFile(Static(), file)
		if err != nil {
			t.Fatal(err)
		}
		if other := regexp.MustCompile(`(?:https?:)?//[a-z0-9.]+\.[a-z]+|@import|eval\(|new Function`).FindAllString(strings.ReplaceAll(string(data), "http://www.w3.org/2000/svg", ""), -1); len(other) > 0 {
			t.Errorf("%s names %v", file, other)
		}
	}
}

// TestSectionsReplaceElementsOfThePage verifies that each pushed section and each row begins with an element with its
// ID, and that the page has exactly one element with this ID.
func TestSectionsReplaceElementsOfThePage(t *testing.T) {
	for name, model := range models("mnist") {
		content, _, _ := strings.Cut(name, " ")
		all, err := New().Sections(content, model)
		if err != nil {
			t.Fatal(err)
		}
		whole := render(t, name, model)
		for _, s := range all {
			for _, part := range append([]Section{s}, s.Rows...) {
				id := `id="` + part.ID + `"`
				if !strings.Contains(part.HTML[:min(len(part.HTML), 120)], id) || strings.Count(whole, id) != 1 {
					t.Errorf("%s: section %s is not in its place", name, part.ID)
				}
			}
		}
	}
}

func TestPushedSectionsDoNotDependOnTheClock(t *testing.T) {
	jobs := models("mnist")["jobs"]
	a, err := New().Sections("jobs", jobs)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range a {
		if strings.Contains(s.HTML, ">60m<") || strings.Contains(s.HTML, "1h<") {
			t.Errorf("section %s has an age: %s", s.ID, s.HTML)
		}
	}
}
