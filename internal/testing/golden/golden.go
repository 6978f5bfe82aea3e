// Package golden compares the results of a test with a file. With -update the test writes the file instead, and the
// change is reviewed in version control.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// Compare fails the test unless got equals the content of the file at path, which is relative to the test's package.
func Compare(t testing.TB, path, got string) {
	t.Helper()
	if *update {
		if err := write(path, got); err != nil {
			t.Fatalf("updating a golden file: %v", err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; if the file is yet to be written: go test -update", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs; if the new text is right: go test -update (-file +got)\n%s", path, diff)
	}
}

// Record writes a file that other tests read, if the tests run with -update. Otherwise it does nothing.
func Record(t testing.TB, path, text string) {
	t.Helper()
	if !*update {
		return
	}
	if err := write(path, text); err != nil {
		t.Fatalf("recording a file: %v", err)
	}
}

func write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}
