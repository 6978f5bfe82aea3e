package web

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/archive/store"
)

// rights holds the resources that a caller may get, such as "genericjobs in ns". The empty namespace stands for all
// namespaces.
type rights map[string]bool

func (r rights) MayGet(_ context.Context, resource schema.GroupResource, namespaces []string) ([]bool, error) {
	may := make([]bool, len(namespaces))
	for i, namespace := range namespaces {
		may[i] = r[resource.Resource+" in "] || r[resource.Resource+" in "+namespace]
	}
	return may, nil
}

// fixture has an archive with one job in each of two namespaces.
type fixture struct {
	*testing.T
	store *store.Store
}

func newFixture(t *testing.T) *fixture {
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "archive.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	begin, code := time.Date(2026, 1, 23, 8, 0, 0, 0, time.UTC), int32(1)
	b := &store.Batch{At: begin}
	for _, ns := range []string{"blue", "red"} {
		b.Jobs = append(b.Jobs, &archive.Job{UID: ns, Version: 1, Kind: "GenericJob", Namespace: ns, Name: "job", Queue: "q", User: "u", Phase: "Failed", Why: "w", Created: begin,
			Ended: begin.Add(time.Hour), Gone: begin.Add(time.Hour), Replicas: 1, Restarts: 1, Object: []byte(`{"kind":"GenericJob"}`),
			Conditions: []archive.Condition{{Type: "Failed", Status: "True", Reason: "R", Message: "m", Since: begin}}})
		b.Attempts = append(b.Attempts, &archive.Attempt{UID: ns, Version: 1, Job: ns, Replica: "job-w-0", Role: "w", Node: "n", Created: begin, Scheduled: begin, Started: begin,
			Ended: begin.Add(time.Hour), Outcome: archive.Failed, ExitCode: &code, Cause: "Error", Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}, Pod: []byte(`{}`)})
		b.Events = append(b.Events, &archive.Event{UID: ns, Version: 1, Job: ns, At: begin, Object: []byte(`{"reason":"R"}`)})
		b.Logs = append(b.Logs, &archive.Log{Attempt: ns, Job: ns, Container: "c", At: begin, Text: []byte("2026-01-23T08:00:00Z secret of " + ns + "\n"), Cut: true})
	}
	if err := s.Write(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	return &fixture{t, s}
}

// get returns the response to a caller with some rights.
func (f *fixture) get(r rights, path string) (int, string) {
	f.Helper()
	w := httptest.NewRecorder()
	New(f.store, func(http.ResponseWriter, *http.Request) Access { return r }).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

const span = "?from=2026-01-23T00:00:00Z&to=2026-01-24T00:00:00Z&by=namespace"

func TestCallersSeeWhatTheyMayGet(t *testing.T) {
	f := newFixture(t)
	blue, all := rights{"genericjobs in blue": true}, rights{"genericjobs in ": true, "pods/log in red": true}
	for _, tc := range []struct {
		name   string
		rights rights
		path   string
		code   int
		has    string
		lacks  string
	}{
		{"a list", blue, "/api/v1/history/jobs", 200, `"namespace":"blue"`, "red"},
		{"a list of everything", all, "/api/v1/history/jobs", 200, `"namespace":"red"`, "nothing"},
		{"a list of nothing", rights{}, "/api/v1/history/jobs", 200, `{"jobs":[],"more":false}`, "blue"},
		{"a list of a hidden namespace", blue, "/api/v1/history/jobs?namespace=red", 200, `{"jobs":[],"more":false}`, "red"},
		{"the next page", all, "/api/v1/history/jobs?limit=1&after=1769155200000.red", 200, `"namespace":"blue"`, "red"},
		{"a page that nobody has named", all, "/api/v1/history/jobs?after=2", 400, "the value of next in an earlier response", "blue"},
		{"an outcome", all, "/api/v1/history/jobs?outcome=Deleted", 200, `{"jobs":[],"more":false}`, "blue"},
		{"a page of a list", all, "/api/v1/history/jobs?limit=1", 200, `"more":true`, "blue"},
		{"a job", blue, "/api/v1/history/jobs/blue", 200, `"exitCode":1`, "red"},
		{"a hidden job", blue, "/api/v1/history/jobs/red", 404, "or you may not see it", "GenericJob"},
		{"a job that is not there", blue, "/api/v1/history/jobs/green", 404, "or you may not see it", "GenericJob"},
		{"logs without the right to", blue, "/api/v1/history/jobs/blue/logs", 403, "you may not read logs", "secret"},
		{"logs", all, "/api/v1/history/jobs/red/logs?replica=w-0", 200, "secret of red", "blue"},
		{"logs of another replica", all, "/api/v1/history/jobs/red/logs?replica=w-1", 200, `{"logs":[]}`, "secret"},
		{"hidden logs", blue, "/api/v1/history/jobs/red/logs", 404, "or you may not see it", "secret"},
		{"usage", blue, "/api/v1/history/usage" + span, 200, `"key":"blue","resource":"nvidia.com/gpu","hours":2}`, "red"},
		{"usage as CSV", all, "/api/v1/history/usage" + span + "&format=csv", 200, ",red,nvidia.com/gpu,2.000000\n", "{"},
		{"an empty span", all, "/api/v1/history/usage?from=2026-01-23T00:00:00Z&to=2026-01-23T00:00:00Z", 400, "the span of time is empty", "hours"},
		{"a wrong time", all, "/api/v1/history/jobs?from=yesterday", 400, "a time such as", "blue"},
		{"a wrong kind", all, "/api/v1/history/jobs?kind=Pod", 400, "a kind of job", "blue"},
		{"another path", all, "/api/v1/history", 404, "/api/v1/openapi.json lists them", "blue"},
	} {
		code, body := f.get(tc.rights, tc.path)
		if code != tc.code || !strings.Contains(body, tc.has) || strings.Contains(body, tc.lacks) {
			t.Errorf("%s: %d, want %d with %q and without %q: %s", tc.name, code, tc.code, tc.has, tc.lacks, body)
		}
	}
}

// counted counts the calls of rights.MayGet, and the namespaces in these calls.
type counted struct {
	rights
	questions, namespaces int
}

func (c *counted) MayGet(ctx context.Context, resource schema.GroupResource, namespaces []string) ([]bool, error) {
	c.questions++
	c.namespaces += len(namespaces)
	return c.rights.MayGet(ctx, resource, namespaces)
}

// TestReaderAsksOncePerKind verifies that a reader asks for all namespaces of a kind at once, and only once.
func TestReaderAsksOncePerKind(t *testing.T) {
	f := newFixture(t)
	access := &counted{rights: rights{"genericjobs in blue": true}}
	r := NewReader(f.store, access)
	for range 2 {
		list, err := r.Jobs(t.Context(), &archive.JobQuery{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Jobs) != 1 || list.Jobs[0].Namespace != "blue" {
			t.Errorf("the reader returns %v", list.Jobs)
		}
	}
	if _, err := r.Job(t.Context(), "red"); err == nil {
		t.Error("the reader returns a hidden job")
	}
	if access.questions != 1 || access.namespaces != 2 {
		t.Errorf("%d questions about %d namespaces, want 1 about 2", access.questions, access.namespaces)
	}
}

// TestDescriptionNamesEveryField verifies that openapi.yaml describes every field of the responses, and that the
// responses contain every field that it describes as required.
func TestDescriptionNamesEveryField(t *testing.T) {
	f := newFixture(t)
	all := rights{"genericjobs in ": true, "pods/log in red": true}
	code, body := f.get(nil, "/api/v1/openapi.json")
	var api struct {
		Paths      map[string]any
		Components struct {
			Schemas map[string]struct {
				Required   []string
				Properties map[string]any
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &api); err != nil || code != 200 {
		t.Fatal(code, err)
	}
	fields := func(schema string, object any) {
		t.Helper()
		values, ok := object.(map[string]any)
		if !ok {
			t.Fatalf("%s is %v", schema, object)
		}
		for name := range values {
			if api.Components.Schemas[schema].Properties[name] == nil {
				t.Errorf("the description of %s lacks %s", schema, name)
			}
		}
		for _, name := range api.Components.Schemas[schema].Required {
			if values[name] == nil {
				t.Errorf("%s lacks %s, which it always has as described", schema, name)
			}
		}
	}
	for path, schemas := range map[string]map[string]string{
		"/api/v1/history/jobs":          {"": "JobList", "jobs": "Job"},
		"/api/v1/history/jobs/red":      {"": "JobDetails", "attempts": "Attempt", "conditions": "Condition"},
		"/api/v1/history/jobs/red/logs": {"": "LogList", "logs": "Log"},
		"/api/v1/history/usage" + span:  {"": "UsageList", "usage": "Usage"},
		"/api/v1/history/jobs/green":    {"": "Error"},
	} {
		pattern, _, _ := strings.Cut(strings.NewReplacer("/red", "/{uid}", "/green", "/{uid}").Replace(path), "?")
		if api.Paths[pattern] == nil {
			t.Errorf("the description lacks %s", pattern)
		}
		_, body := f.get(all, path)
		var answer map[string]any
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			t.Fatal(err)
		}
		for list, schema := range schemas {
			if list == "" {
				fields(schema, answer)
				continue
			}
			items, _ := answer[list].([]any)
			if len(items) == 0 {
				t.Errorf("%s: %s is empty", path, list)
			}
			for _, item := range items {
				fields(schema, item)
			}
		}
	}
}
