package validate_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tensorstack.dev/batch/internal/cli"
	"tensorstack.dev/batch/internal/cli/clitest"
	"tensorstack.dev/batch/internal/testing/golden"
)

func TestValidateReportsErrors(t *testing.T) {
	t.Chdir("../testdata/validate")
	for _, test := range []struct {
		file string
		code int
	}{
		{"good.yaml", 0}, {"good.json", 0}, {"fields.yaml", 1}, {"schema.yaml", 1}, {"code.yaml", 1}, {"training.yaml", 0}, {"training-bad.yaml", 1}, {"syntax.yaml", 1}, {"kinds.yaml", 1},
		{"others.yaml", 0}, {"others-bad.yaml", 1}, {"one-round.yaml", 1}, {"wrong-types.yaml", 1}, {"lines.json", 1}, {"broken.json", 1}, {"warnings.yaml", 0},
	} {
		t.Run(test.file, func(t *testing.T) {
			args := []string{"validate", "-f", test.file}
			out, errOut, code := clitest.Call(t, cli.Main, "", args...)
			if code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			golden.Compare(t, test.file+".txt", clitest.Transcript(args, out, errOut, code))
		})
	}
}

// TestValidateChecksQueuesAndGroups verifies that the verb refuses every manifest of a queue or group that the API
// server refuses in the tests of test/scheduler.
func TestValidateChecksQueuesAndGroups(t *testing.T) {
	t.Chdir("..")
	files, err := filepath.Glob("../../test/scheduler/testdata/bad/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no bad manifests: %v", err)
	}
	for _, file := range files {
		if out, errOut, code := clitest.Call(t, cli.Main, "", "validate", "-f", file); code != 1 || errOut != "" || !strings.HasPrefix(out, file+":") {
			t.Errorf("exit code %d\n%s%s", code, out, errOut)
		}
	}
}

// TestValidateAgreesWithTheCluster verifies that the verb agrees with a cluster about the test manifests of the kinds:
// it accepts the valid manifests and reports an error for each invalid one, whether the schema or only Go code finds
// the error.
func TestValidateAgreesWithTheCluster(t *testing.T) {
	t.Chdir("..")
	const dir = "../kinds/testdata/"
	for _, test := range []struct {
		kind string
		code int
	}{{"good", 0}, {"users", 0}, {"bad", 1}} {
		files, err := filepath.Glob(dir + test.kind + "/*.yaml")
		if err != nil || len(files) == 0 {
			t.Fatalf("no manifests in %s%s: %v", dir, test.kind, err)
		}
		args := []string{"validate"}
		for _, file := range files {
			args = append(args, "-f", file)
		}
		out, errOut, code := clitest.Call(t, cli.Main, "", args...)
		if code != test.code {
			t.Errorf("%s manifests: exit code %d\n%s%s", test.kind, code, out, errOut)
		}
		for _, file := range files {
			// A forbidden update consists of two jobs, each of which is valid.
			change := strings.HasPrefix(filepath.Base(file), "update-")
			if said := strings.Contains(out, file+":"); said == change {
				t.Errorf("%s is reported: %t", file, said)
			}
		}
	}
}

func TestValidateReadsStandardInput(t *testing.T) {
	t.Chdir("..")
	manifest, err := os.ReadFile("testdata/validate/good.json")
	if err != nil {
		t.Fatal(err)
	}
	out, errOut, code := clitest.Call(t, cli.Main, string(manifest), "validate", "-f", "-", "-f", "testdata/validate/good.yaml")
	if code != 0 || !strings.Contains(out, "genericjob/mnist is valid") || !strings.Contains(out, "genericjob/mnist- is valid") {
		t.Errorf("exit code %d, output:\n%s%s", code, out, errOut)
	}
}

// TestHugeManifestsAreRejected verifies that manifests that no cluster would accept are rejected within 10 s, so that
// they do not use up the memory of this machine.
func TestHugeManifestsAreRejected(t *testing.T) {
	t.Chdir("..")
	lists := strings.Repeat(`{"apiVersion":"v1","kind":"List","items":[`, 4500) + strings.Repeat(`]}`, 4500)
	flows := "a: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	for _, test := range []struct{ name, manifest, want string }{
		{"lists in lists", lists, "stdin:1: the document has more than 100 levels"},
		{"lists in lists behind another document", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n" + flows, "stdin:5: the document has more than 100 levels"},
		{"a large document", "a: " + strings.Repeat("x", 4<<20), "stdin:1: the document is larger than 3 MiB"},
		{"a large file", strings.Repeat("# nothing\n", 4<<20), "reading stdin: it is larger than 32 MiB"},
		{"many documents", strings.Repeat("---\na: b\n", 20_000), "reading stdin: it has more than 10000 documents"},
		{"an anchor within itself", "a: &a [*a]\n", "stdin:1: "},
	} {
		began := time.Now()
		out, errOut, code := clitest.Call(t, cli.Main, test.manifest, "validate", "-f", "-")
		if code != 1 || !strings.Contains(out+errOut, test.want) {
			t.Errorf("%s: exit code %d\n%.300s%.300s", test.name, code, out, errOut)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s took %s", test.name, took)
		}
	}
}
