package scheduler

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTableOfClausesNamesExistingTests verifies that each test in the table of the package's documentation exists in
// its package.
func TestTableOfClausesNamesExistingTests(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	header, table, _ := strings.Cut(string(text), " here\n")
	header = header[strings.LastIndex(header, "//\t")+len("//\t"):]
	table, _, _ = strings.Cut(table, "//\n")
	word := regexp.MustCompile(`Test\w+`)
	core := strings.Index(header, "core")
	columns := regexp.MustCompile(fmt.Sprintf(`^//\t.{%d}(.{%d})(.*)$`, core, len(header)+1-core))
	n := 0
	for line := range strings.Lines(table) {
		parts := columns.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if parts == nil {
			t.Fatalf("the line does not have three columns: %q", line)
		}
		for i, dir := range []string{"../../internal/scheduler/core", "."} {
			for _, name := range word.FindAllString(parts[i+1], -1) {
				n++
				if !hasTest(t, dir, name) {
					t.Errorf("there is no %s in %s", name, dir)
				}
			}
		}
	}
	if n < 40 {
		t.Errorf("the table names %d tests only", n)
	}
}

func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+name+"(t *testing.T) {") {
			return true
		}
	}
	return false
}
