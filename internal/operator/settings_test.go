package operator

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommandRefusesAnInvalidFile verifies that the operator ends with an error that names the configuration file and
// the problem if the file is empty or has an unknown field, and that a missing file is an error.
func TestCommandRefusesAnInvalidFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	for text, want := range map[string]string{
		"": "is empty",
		"apiVersion: config.tensorstack.dev/v1alpha1\nkind: OperatorConfiguration\njobs: {maxReplica: 1}\n": `unknown field "jobs.maxReplica"`,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := NewCommand()
		cmd.SetArgs([]string{"--config=" + file})
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%q: the error lacks %q or the file: %v", text, want, err)
		}
	}
	cmd := NewCommand()
	cmd.SetArgs([]string{"--config=" + file + ".missing"})
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "reading the configuration") {
		t.Errorf("a missing file: %v", err)
	}
}
