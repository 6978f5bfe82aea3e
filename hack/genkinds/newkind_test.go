package main

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/testing/require"
)

var withNewKind = flag.Bool("newkind", false, "add a kind of job to a copy of the tree and compile all tests there (make test-newkind)")

// newKind is a tree of the files that a developer writes to add a kind of job.
const newKind = "testdata/newkind"

// lines are the lines to add to existing files, each after a given line.
var lines = []struct{ file, after, line string }{
	// The kind is the first one of the list, so that code that finds another kind by its position fails.
	{"internal/kinds/kinds.go", "var All = []Kind{\n", "\txgBoostTrainingJob,\n"},
	{"README.md", "| [docs/tensorflow.md](docs/tensorflow.md) | guide: TensorFlowTrainingJob |\n",
		"| [docs/xgboost.md](docs/xgboost.md) | guide: XGBoostTrainingJob |\n"},
}

// TestNewKind verifies that a kind of job needs only its types, a file that converts and validates it, a line in
// kinds.All, test data, an example, a guide and a line about the guide in README.md, and that `make generate` writes
// everything else.
func TestNewKind(t *testing.T) {
	if !*withNewKind {
		t.Skip("compiles all tests in a copy of the tree: make test-newkind")
	}
	for _, tool := range []string{"go", "make"} {
		if _, err := exec.LookPath(tool); err != nil {
			require.Missing(t, tool)
		}
	}
	source, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	root := cloneDir(t, source)
	copyTree(t, source, root, ".git", "bin", "bench", "dist")
	byHand := copyTree(t, newKind, root)
	for _, l := range lines {
		insert(t, filepath.Join(root, l.file), l.after, l.line)
		byHand = append(byHand, l.file)
	}
	slices.Sort(byHand)
	want := []string{
		"README.md",
		"api/batch/v1beta1/xgboosttrainingjob_types.go",
		"docs/xgboost.md",
		"examples/xgboost/job.yaml",
		"internal/kinds/kinds.go",
		"internal/kinds/testdata/bad/xgboost-replicas-negative.yaml",
		"internal/kinds/testdata/good/xgboost-minimal.yaml",
		"internal/kinds/testdata/good/xgboost-queue.yaml",
		"internal/kinds/testdata/good/xgboost-workers.yaml",
		"internal/kinds/xgboost.go",
	}
	if diff := cmp.Diff(want, byHand); diff != "" {
		t.Errorf("files touched by hand (-want +got)\n%s", diff)
	}

	run(t, root, "make", "generate", "TOOLS="+filepath.Join(source, "bin", "tools"))
	namedEverywhere(t, root)
	run(t, root, "go", "list", "-export", "-test", "./...") // compiles all tests
	test := []string{"test", "-vet=off", "-ldflags=-s -w"}
	tests, inKinds := filepath.Join(t.TempDir(), "kinds.test"), filepath.Join(root, "internal", "kinds")
	run(t, root, "go", append(test, "-c", "-o", tests, "./internal/kinds")...)
	run(t, inKinds, tests, "-test.run=^(TestGoodManifests|TestBadManifestsGetTheirErrorMessages)$/^xgboost-", "-update")
	run(t, inKinds, tests, "-test.run=^TestKinds$/^XGBoost")
	run(t, inKinds, tests, "-test.skip=^TestKinds$")
	run(t, root, "go", slices.Concat(test, []string{"-skip=^(TestWorlds|TestEveryOrder)$"}, testsOfKinds(t, root))...)
	t.Logf("%d files touched by hand", len(byHand))
}

// testsOfKinds returns the packages, other than kinds, whose tests use the kinds of job and need no cluster.
func testsOfKinds(t *testing.T, root string) []string {
	t.Helper()
	const imports = "{{range .TestImports}} {{.}}{{end}}{{range .XTestImports}} {{.}}{{end}}"
	out := run(t, root, "go", "list", "-f", "{{.ImportPath}}"+imports, "./config/...", "./docs/...", "./internal/...")
	var packages []string
	for line := range strings.Lines(out) {
		name, _, _ := strings.Cut(line, " ")
		if strings.Contains(line, " tensorstack.dev/batch/internal/kinds") && !strings.Contains(line, "/internal/testing/testenv") &&
			!strings.HasSuffix(name, "/internal/kinds") {
			packages = append(packages, name)
		}
	}
	if len(packages) < 10 {
		t.Errorf("only the tests of %q use the kinds of job", packages)
	}
	return packages
}

// cloneDir returns the path of a directory for the clone, which does not exist yet and is removed when the test ends.
// The path is always the same for one checkout, because Go's build cache identifies packages by directory.
func cloneDir(t *testing.T, source string) string {
	t.Helper()
	dir := filepath.Join(source, "bin", "newkind")
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil { // a second run of this test waits here
		t.Fatal(err)
	}
	remove := func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	}
	remove() // left by a killed run
	t.Cleanup(func() {
		remove()
		lock.Close()
	})
	return dir
}

// namedEverywhere checks that every file that names all other kinds names the new kind. Tests may name single kinds,
// but must not list all of them.
func namedEverywhere(t *testing.T, root string) {
	t.Helper()
	found := 0
	for _, path := range files(t, root, "internal/convert", "hack/genkinds") {
		switch filepath.Ext(path) {
		case ".go", ".yaml", ".yml", ".md", "":
		default:
			continue
		}
		if strings.Contains(path, "testdata/") || slices.Contains([]string{"CHANGELOG.md", "README.md"}, path) || strings.HasPrefix(path, "docs/designs/") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, "_test.go") {
			if listsKinds(data) {
				t.Errorf("%s lists the kinds of job: derive the list from kinds.All", path)
			}
			continue
		}
		if mentionsAll(data) {
			found++
			if !mentions(data, "XGBoostTrainingJob") && !mentions(data, "xgboosttrainingjobs") {
				t.Errorf("%s names every kind of job but the new one", path)
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d files name the new kind", found)
	}
}

// mentionsAll reports whether a text names all kinds but the new one.
func mentionsAll(text []byte) bool {
	return !slices.ContainsFunc(kinds.All, func(k kinds.Kind) bool { return !mentions(text, k.Name) && !mentions(text, k.Plural) })
}

// listsKinds reports whether a text names all kinds but the new one within 2*len(kinds.All) lines.
func listsKinds(text []byte) bool {
	if !mentionsAll(text) {
		return false
	}
	lines := bytes.Split(text, []byte("\n"))
	for i := range lines {
		if mentionsAll(bytes.Join(lines[i:min(i+2*len(kinds.All), len(lines))], []byte("\n"))) {
			return true
		}
	}
	return false
}

func mentions(text []byte, word string) bool {
	return regexp.MustCompile(`(?i)` + word + `(List)?(\b|_)`).Match(text)
}

// copyTree copies the files below a directory, except those in the given subdirectories. It returns the paths of the
// copied files.
func copyTree(t *testing.T, from, to string, except ...string) []string {
	t.Helper()
	paths := files(t, from, except...)
	for _, path := range paths {
		data, err := os.ReadFile(filepath.Join(from, path))
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(from, path))
		if err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(to, path)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(target, data, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
		// make compares modification times.
		if err := os.Chtimes(target, info.ModTime(), info.ModTime()); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

// files lists the regular files below a directory by their relative paths.
func files(t *testing.T, dir string, except ...string) []string {
	t.Helper()
	var paths []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case slices.Contains(except, path) && d.IsDir():
			return fs.SkipDir
		case d.Type().IsRegular():
			paths = append(paths, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// insert adds a line to a file, after a given line.
func insert(t *testing.T, file, after, line string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Count(data, []byte(after)) != 1 {
		t.Fatalf("%s does not hold %q once", file, after)
	}
	if err := os.WriteFile(file, bytes.Replace(data, []byte(after), []byte(after+line), 1), 0o644); err != nil {
		t.Fatal(err)
	}
}

// run runs a command in a directory and returns its output. The command must succeed.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
