package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/archive/store"
	"tensorstack.dev/batch/internal/archive/web"
)

// rights holds the resources that a user may get, such as "genericjobs in ns". The empty namespace stands for all
// namespaces. With the key "broken", each question fails.
type rights map[string]bool

func (r rights) MayGet(_ context.Context, resource schema.GroupResource, namespaces []string) ([]bool, error) {
	if r["broken"] {
		return nil, errors.New("the API server does not answer")
	}
	may := make([]bool, len(namespaces))
	for i, namespace := range namespaces {
		may[i] = r[resource.Resource+" in "] || r[resource.Resource+" in "+namespace]
	}
	return may, nil
}

// archived returns an archive with one job in each of two namespaces.
func archived(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "archive.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	begin, code := time.Now().Add(-2*time.Hour).UTC().Truncate(time.Second), int32(3)
	b := &store.Batch{At: begin}
	for _, ns := range []string{"blue", "red"} {
		created := begin.Format(time.RFC3339)
		object := `{"apiVersion":"batch.tensorstack.dev/v1beta1","kind":"GenericJob","metadata":{"name":"job","namespace":"` + ns + `","uid":"` + ns + `","creationTimestamp":"` + created + `"},
			"spec":{"runMode":{"pause":{"enabled":true}},"replicaSpecs":[{"type":"w","template":{"spec":{"containers":[{"name":"c","image":"image-of-` + ns + `"}]}}}]}}`
		b.Jobs = append(b.Jobs, &archive.Job{UID: ns, Version: 1, Kind: "GenericJob", Namespace: ns, Name: "job", Queue: "queue-" + ns, User: "user-" + ns, Phase: "Failed", Why: "why-" + ns,
			Created: begin, Ended: begin.Add(time.Hour), Gone: begin.Add(time.Hour), Replicas: 1, Object: []byte(object)})
		b.Attempts = append(b.Attempts, &archive.Attempt{UID: ns, Version: 1, Job: ns, Replica: "job-w-0", Role: "w", Node: "node-" + ns, Created: begin, Scheduled: begin, Started: begin,
			Ended: begin.Add(time.Hour), Outcome: archive.Failed, ExitCode: &code, Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}, Pod: []byte(`{}`)})
		b.Events = append(b.Events, &archive.Event{UID: ns, Version: 1, Job: ns, At: begin, Object: []byte(`{"reason":"ReasonIn` + ns + `"}`)})
		b.Logs = append(b.Logs, &archive.Log{Attempt: ns, Job: ns, Container: "c", At: begin, Text: []byte("2026-01-23T08:00:00Z printed-" + ns + " <b>\n")})
	}
	if err := s.Write(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestHistoryPagesShowWhatTheirCallerMayGet verifies which records each of several users sees on each page of the
// archive.
func TestHistoryPagesShowWhatTheirCallerMayGet(t *testing.T) {
	s, kept := forbidden(t), archived(t)
	cookies := enter(t, s)
	users := map[string]rights{"nobody": {}, "blue": {"genericjobs in blue": true}, "reader": {"genericjobs in blue": true, "pods/log in blue": true},
		"admin": {"genericjobs in ": true, "pods/log in blue": true, "pods/log in red": true}, "unlucky": {"broken": true}}
	const ok, none, denied, down = http.StatusOK, http.StatusNotFound, http.StatusForbidden, http.StatusServiceUnavailable
	for _, c := range []struct {
		user, path string
		code       int
		// has and lacks hold texts separated by spaces. In has, &#32; stands for a space within a text.
		has, lacks string
	}{
		{"nobody", "/history", ok, "You see the jobs of the namespaces", "user-blue user-red"},
		{"blue", "/history", ok, "user-blue /history/blue why-blue", "user-red /history/red"},
		{"admin", "/history", ok, "user-blue user-red", "yet"},
		{"admin", "/history?user=user-red", ok, "/history/red", "/history/blue"},
		{"admin", "/history?q=JO&ns=blue&queue=queue-blue&outcome=Failed&gone=1", ok, "/history/blue", "/history/red"},
		{"admin", "/history?outcome=Deleted", ok, "matches", "/history/blue"},
		{"admin", "/history?from=never", ok, "cannot&#32;be&#32;read /history/blue", "nothing"},
		{"blue", "/history?ns=red", ok, "matches", "/history/red"},
		{"nobody", "/history/blue", none, "or you may not see it", "node-blue"},
		{"blue", "/history/blue", ok, "node-blue exit&#32;code&#32;3 lane image-of-blue job-2", "red enabled"},
		{"blue", "/history/blue?tab=events", ok, "ReasonInblue", "ReasonInred"},
		{"blue", "/history/blue?tab=replicas", ok, "Replica", "node-red"},
		{"blue", "/history/blue?tab=conditions", ok, "Condition", "node-red"},
		{"blue", "/history/blue?tab=manifest", ok, "image:&#32;image-of-blue", "image-of-red"},
		{"blue", "/history/blue?tab=manifest&form=pods", ok, "job-w-0", "image-of-red"},
		{"blue", "/history/red", none, "or you may not see it", "node-red"},
		{"blue", "/history/green", none, "or you may not see it", "node-red"},
		{"blue", "/history/blue/logs", denied, "you may not read logs", "printed"},
		{"blue", "/history/blue/logs/stream", denied, "you may not read logs", "printed"},
		{"blue", "/history/blue/logs/download", denied, "you may not read logs", "printed"},
		{"reader", "/history/blue/logs", ok, "printed-blue &lt;b&gt;", "printed-red <b>&lt;"},
		{"reader", "/history/blue/logs?replica=w-1", ok, "has&#32;no&#32;such&#32;log", "printed-blue"},
		{"reader", "/history/blue/logs?attempt=2", ok, "has&#32;no&#32;such&#32;log", "printed-blue"},
		{"reader", "/history/blue/logs?replica=w-0&attempt=1&pod=blue", ok, "printed-blue pod=blue", "has&#32;no&#32;such&#32;log"},
		{"reader", "/history/blue/logs/download?pod=other", ok, "", "printed-blue"},
		{"reader", "/history/blue/logs/stream?pod=other", ok, "event:&#32;end", "printed-blue"},
		{"reader", "/history/blue/logs/stream?attempt=1", ok, "printed-blue event:&#32;end", "printed-red"},
		{"reader", "/history/blue/logs/download", ok, "2026-01-23T08:00:00Z&#32;w-0&#32;printed-blue&#32;<b>", "printed-red"},
		{"reader", "/history/red/logs", none, "or you may not see it", "printed-red"},
		{"nobody", "/history/usage", ok, "Nothing&#32;was&#32;used", "queue-blue"},
		{"blue", "/history/usage", ok, `queue-blue <b&#32;class="total">2</b>`, "queue-red"},
		{"admin", "/history/usage?by=namespace", ok, `>blue< >red< <b&#32;class="total">4</b>`, "queue-red"},
		{"admin", "/history/usage?by=user&ns=red", ok, `user-red <b&#32;class="total">2</b>`, "user-blue"},
		{"admin", "/history/usage?resource=cpu", ok, "has&#32;held&#32;cpu", "queue-blue"},
		{"blue", "/history/usage.csv", ok, "from,to,queue,resource,hours queue-blue,nvidia.com/gpu", "queue-red <"},
		{"unlucky", "/history", down, "does not answer", "user-blue"},
		{"unlucky", "/history/usage.csv", down, "does not answer", "user-blue"},
		{"admin", "/jobs/blue/genericjob/job", none, `href="/history/blue"`, "/history/red"},
		{"admin", "/jobs/blue/genericjob/job/logs", none, `href="/history/blue/logs"`, "/history/red"},
		{"blue", "/jobs/red/genericjob/job/logs", none, "may&#32;not&#32;see", "/history/red"},
		{"blue", "/jobs/red/genericjob/job", none, "may&#32;not&#32;see", "/history/red"},
		{"unlucky", "/jobs/blue/genericjob/job", none, "may&#32;not&#32;see", "/history/blue"},
	} {
		s.History = func(*Caller) (History, error) { return web.NewReader(kept, users[c.user]), nil }
		answer := call(s, http.MethodGet, c.path, cookies)
		data, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		body := string(data)
		if answer.StatusCode != c.code {
			t.Errorf("%s, %s: %s, want %d", c.user, c.path, answer.Status, c.code)
		}
		for _, text := range strings.Fields(c.has) {
			if text = strings.ReplaceAll(text, "&#32;", " "); !strings.Contains(body, text) {
				t.Errorf("%s, %s: %q is missing in %s", c.user, c.path, text, body)
			}
		}
		for _, text := range strings.Fields(c.lacks) {
			if strings.Contains(body, text) {
				t.Errorf("%s, %s: has %q", c.user, c.path, text)
			}
		}
	}
}

func TestConsoleWithoutArchiveSaysHowToGetOne(t *testing.T) {
	s := forbidden(t)
	cookies := enter(t, s)
	for _, path := range []string{"/history", "/history/usage", "/history/uid", "/history/uid/logs"} {
		answer := call(s, http.MethodGet, path, cookies)
		data, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusNotFound || !strings.Contains(string(data), "T9K_CONSOLE=https://console.example.org t9k ui") {
			t.Errorf("%s: %s, %v: %s", path, answer.Status, err, data)
		}
	}
	s.History = func(*Caller) (History, error) { return nil, errors.New("the kubeconfig has no bearer token") }
	answer := call(s, http.MethodGet, "/history", cookies)
	if data, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(data), "has no bearer token") {
		t.Errorf("an archive that cannot be reached: %s, %v", answer.Status, err)
	}
}
