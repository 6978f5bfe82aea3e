package audit_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tensorstack.dev/batch/internal/testing/audit"
)

// TestIncompleteLine verifies that Next leaves a line that the API server is still writing to a later call, and that
// OpenAtEnd starts before such a line.
func TestIncompleteLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	log := audit.Open(path)
	if events, err := log.Next(); len(events) > 0 || err != nil {
		t.Fatalf("without a file: %v, %v", events, err)
	}
	const created = `{"stage":"ResponseComplete","verb":"create","requestURI":"/api/v1/namespaces/red/pods","user":{"username":"ann"},` +
		`"objectRef":{"resource":"pods","namespace":"red","name":"a"},"responseStatus":{"code":403,"message":"no"},` +
		`"annotations":{"authorization.k8s.io/decision":"forbid"}}` + "\n"
	write(t, path, created+created[:40])
	end, err := audit.OpenAtEnd(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []audit.Event{{User: "ann", Verb: "create", Resource: "pods", Namespace: "red", Name: "a",
		URI: "/api/v1/namespaces/red/pods", Code: 403, Message: "no", Forbidden: true}}
	check(t, log, want)
	check(t, log, nil)
	write(t, path, created+created)
	check(t, log, want)
	check(t, end, want)
}

func check(t *testing.T, log *audit.Log, want []audit.Event) {
	t.Helper()
	events, err := log.Next()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Error(diff)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
