// Package docs_test checks the statements of the documentation about the source tree against the tree.
package docs_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tensorstack.dev/batch/internal/kinds"
)

const root = ".."

// TestImportTable compares the table of packages in architecture.md with the actual imports.
func TestImportTable(t *testing.T) {
	rows := importTable(t)
	imports := map[string][]string{}
	for _, dir := range goDirs(t) {
		row := rowOf(rows, dir)
		if row == "" {
			t.Errorf("architecture.md: the table of packages has no row for %s", dir)
			continue
		}
		imports[row] = append(imports[row], importsOf(t, rows, dir)...)
	}
	for row, listed := range rows {
		found := slices.Compact(slices.Sorted(slices.Values(imports[row])))
		want := strings.Join(found, ", ")
		if want == "" {
			want = "–"
		}
		if listed != want {
			t.Errorf("architecture.md: the table says that %s imports\n\t%s\nand it imports\n\t%s", row, listed, want)
		}
	}
}

var tableRow = regexp.MustCompile("(?m)^\\| `((?:api|cmd|internal)/[^`]*)` \\|[^|]*\\| ([^|]*) \\|$")

// importTable maps the first column of the table to the third.
func importTable(t *testing.T) map[string]string {
	rows := map[string]string{}
	for _, m := range tableRow.FindAllStringSubmatch(read(t, "docs/architecture.md"), -1) {
		rows[strings.TrimSuffix(m[1], "/")] = strings.ReplaceAll(m[2], "`", "")
	}
	if len(rows) == 0 {
		t.Fatal("architecture.md has no table of packages")
	}
	return rows
}

// rowOf returns the row for a directory: its own row, or the row of the nearest parent directory; empty if there is
// none.
func rowOf(rows map[string]string, dir string) string {
	for ; dir != "."; dir = filepath.Dir(dir) {
		if _, ok := rows[dir]; ok {
			return dir
		}
	}
	return ""
}

// goDirs lists the directories of the product's packages.
func goDirs(t *testing.T) []string {
	var dirs []string
	for _, top := range []string{"cmd", "internal"} {
		walk(t, top, func(path string) {
			if dir := filepath.Dir(path); strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") && !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		})
	}
	return dirs
}

// importsOf lists the imports of a directory by their names in the table: packages of this module outside of its row,
// and the Kubernetes packages with which a package can reach a cluster.
func importsOf(t *testing.T, rows map[string]string, dir string) []string {
	files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range parsed.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			ours, isOurs := strings.CutPrefix(path, "tensorstack.dev/batch/")
			if isOurs && rowOf(rows, ours) == rowOf(rows, dir) {
				continue
			}
			if name := importName(path); name != "" {
				names = append(names, name)
			}
		}
	}
	return names
}

// importName returns the table's name of an import; empty if the table leaves the import out.
func importName(path string) string {
	if ours, ok := strings.CutPrefix(path, "tensorstack.dev/batch/"); ok {
		if strings.HasPrefix(ours, "api/") {
			return "api"
		}
		return strings.TrimPrefix(ours, "internal/")
	}
	for prefix, name := range map[string]string{
		"k8s.io/client-go": "client-go", "k8s.io/kubernetes": "k8s.io/kubernetes", "sigs.k8s.io/controller-runtime": "controller-runtime",
	} {
		if path == prefix || strings.HasPrefix(path, prefix+"/") {
			return name
		}
	}
	return ""
}

// TestPlacesOfAKind verifies that the list in CONTRIBUTING.md of the files that name each kind of job is complete and
// has no other files.
func TestPlacesOfAKind(t *testing.T) {
	listed := placesOfAKind(t)
	for _, kind := range kinds.All {
		named := regexp.MustCompile(fmt.Sprintf(`(?i)\b(%s|%s)\b|_%s\.yaml`, kind.Name, kind.Plural, kind.Plural))
		for _, place := range listed {
			if text := read(t, strings.ReplaceAll(place, "KIND", strings.ToLower(kind.Name))); !named.MatchString(text) {
				t.Errorf("CONTRIBUTING.md: %s is listed as naming each kind of job, and does not name %s", place, kind.Name)
			}
		}
	}
	var found []string
	for _, top := range []string{"api", "config", "internal", "tools"} {
		walk(t, top, func(path string) {
			if generated(path) || !slices.Contains([]string{".go", ".yaml", ".yml"}, filepath.Ext(path)) {
				return
			}
			if strings.Contains(strings.ToLower(generatedRow.ReplaceAllString(read(t, path), "")), "tensorflowtrainingjob") {
				found = append(found, strings.ReplaceAll(path, "tensorflowtrainingjob", "KIND"))
			}
		})
	}
	slices.Sort(found)
	// The file that converts a kind has the name of the framework, which the list cannot express. The packages named
	// convert name Kubeflow's kinds, which are not kinds of this project.
	found = slices.DeleteFunc(found, func(path string) bool {
		return path == "internal/kinds/tensorflow.go" || strings.Contains(path, "convert")
	})
	if diff := cmp.Diff(listed, found); diff != "" {
		t.Errorf("CONTRIBUTING.md: the list of the files that name each kind of job (-listed +found):\n%s", diff)
	}
}

// generatedRow matches a line that hack/genkinds writes into a file that is otherwise written by hand.
var generatedRow = regexp.MustCompile("(?m)^.*  # generated: .*$")

var placeOfAKind = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")

func placesOfAKind(t *testing.T) []string {
	var places []string
	for _, m := range placeOfAKind.FindAllStringSubmatch(read(t, "CONTRIBUTING.md"), -1) {
		places = append(places, m[1])
	}
	slices.Sort(places)
	return places
}

// generated reports whether a file is written by `make generate`, or is a test or test data.
func generated(path string) bool {
	return strings.HasSuffix(path, "_test.go") || strings.Contains(path, "zz_generated") || strings.Contains(path, "testdata/") ||
		strings.HasPrefix(path, "api/applyconfiguration/") || strings.HasPrefix(path, "config/crd/batch.") || path == "config/rbac/role.yaml" ||
		path == "config/crd/kustomization.yml"
}

// TestRelativeLinksLeadToFiles verifies that every relative link of the documentation leads to a file.
func TestRelativeLinksLeadToFiles(t *testing.T) {
	link := regexp.MustCompile(`\]\(([\w./-]+)(?:#[^)]*)?\)`)
	pages := []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md"}
	for _, top := range []string{"docs", "examples"} {
		walk(t, top, func(path string) {
			if strings.HasSuffix(path, ".md") {
				pages = append(pages, path)
			}
		})
	}
	for _, page := range pages {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			}
		}
	}
}

// walk calls f for every file below a directory of the repository, by its path from the root.
func walk(t *testing.T, top string, f func(path string)) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f(strings.TrimPrefix(path, root+"/"))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// step matches a step in architecture.md, which names a file and a function in this file.
var step = regexp.MustCompile("(?m)^[0-9]+\\. `([a-z/0-9_]+\\.go)`: `([A-Za-z]+)`")

// TestArchitecturePlacesFunctionsInTheirFiles verifies that each function that architecture.md places in a file is
// there.
func TestArchitecturePlacesFunctionsInTheirFiles(t *testing.T) {
	steps := step.FindAllStringSubmatch(read(t, "docs/architecture.md"), -1)
	if len(steps) < 10 {
		t.Fatalf("architecture.md has %d steps", len(steps))
	}
	for _, m := range steps {
		if !regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + m[2] + `\(`).MatchString(read(t, m[1])) {
			t.Errorf("architecture.md: %s has no function %s", m[1], m[2])
		}
	}
}

var (
	declaredTest = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	namedTest    = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w*`)
	// prose matches a line of a comment that is text and not an example of code.
	prose = regexp.MustCompile(`(?m)(?:^|\s)// .*$`)
)

// TestNamesOfTestsExist verifies that every test that a page, a script or a comment names exists. After -run, the
// beginning of a name is enough.
func TestNamesOfTestsExist(t *testing.T) {
	var pages []string
	exist := map[string]bool{}
	files := func(path string) {
		switch {
		case strings.HasSuffix(path, ".go"):
			for _, m := range declaredTest.FindAllStringSubmatch(read(t, path), -1) {
				exist[m[1]] = true
			}
			pages = append(pages, path)
		case strings.HasSuffix(path, ".md"), filepath.Ext(path) == "":
			pages = append(pages, path)
		}
	}
	for _, top := range []string{".ci", "api", "charts", "cmd", "config", "docs", "examples", "hack", "internal", "test", "tools"} {
		walk(t, top, files)
	}
	for _, path := range []string{"CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "README.md", "SECURITY.md"} {
		files(path)
	}
	named := 0
	for _, page := range pages {
		text := read(t, page)
		if strings.HasSuffix(page, ".go") {
			text = strings.Join(prose.FindAllString(text, -1), "\n")
		}
		for line := range strings.Lines(text) {
			for _, name := range namedTest.FindAllString(line, -1) {
				named++
				if short := strings.Contains(line, "-run "); !exist[name] && (!short || !begins(exist, name)) {
					t.Errorf("%s: there is no %s", page, name)
				}
			}
		}
	}
	if named < 100 {
		t.Errorf("only %d names of tests were found", named)
	}
}

// begins reports whether a name in a set begins with a prefix.
func begins(names map[string]bool, prefix string) bool {
	for name := range names {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
