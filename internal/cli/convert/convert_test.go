package convert_test

import (
	"path/filepath"
	"testing"

	"tensorstack.dev/batch/internal/cli"
	"tensorstack.dev/batch/internal/cli/clitest"
	"tensorstack.dev/batch/internal/testing/golden"
)

func TestConvertWritesTheNewForm(t *testing.T) {
	t.Chdir("..")
	for _, test := range []struct {
		file string
		code int
	}{{"several.yaml", 0}, {"refused.yaml", 1}, {"invalid.yaml", 1}, {"none.yaml", 1}} {
		args := []string{"convert", "-f", "testdata/convert/" + test.file}
		out, errOut, code := clitest.Call(t, cli.Main, "", args...)
		if code != test.code {
			t.Errorf("%s: exit code %d, want %d", test.file, code, test.code)
		}
		golden.Compare(t, "testdata/convert/"+test.file+".txt", clitest.Transcript(args, out, errOut, code))
	}
}

// TestConvertedManifestsAreValid verifies that "t9k validate" accepts the converted form of every test manifest of
// internal/convert.
func TestConvertedManifestsAreValid(t *testing.T) {
	t.Chdir("..")
	files, err := filepath.Glob("../convert/testdata/*.yaml")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d manifests: %v", len(files), err)
	}
	for _, file := range files {
		out, errOut, code := clitest.Call(t, cli.Main, "", "convert", "-f", file)
		if code != 0 {
			t.Errorf("convert -f %s: exit code %d\n%s", file, code, errOut)
			continue
		}
		if said, _, code := clitest.Call(t, cli.Main, out, "validate", "-f", "-"); code != 0 {
			t.Errorf("the converted form of %s is not valid:\n%s", file, said)
		}
	}
}
