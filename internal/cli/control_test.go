package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNoControlSequenceIsPassedOn verifies that commands that need no cluster, or that fail before they connect to one,
// escape control sequences in manifests, arguments and names of files. TestCLIPassesNoControlSequenceOn in
// test/integration checks the other verbs.
func TestNoControlSequenceIsPassedOn(t *testing.T) {
	const evil = `\u001b[2J\u009b31m\u0007`
	manifest := `{"apiVersion": "batch.tensorstack.dev/v1beta1", "kind": "GenericJob", "metadata": {"name": "evil", "annotations": {"a": "` + evil + `"}},
		"spec": {"cleanUpPolicy": "` + evil + `", "replicaSpecs": [{"type": "w` + evil + `", "template": {"spec": {"containers": [
		{"name": "main", "image": "` + evil + `", "command": ["` + evil + `", "$(replicas[` + evil + `])"]}]}}}]}}`
	mild := strings.NewReplacer(`"cleanUpPolicy": "`+evil+`", `, "", `"w`+evil+`"`, `"worker"`, "$(replicas["+evil+"])", "").Replace(manifest)
	kubeflow := `{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "evil"}, "spec": {"` + evil + `": 1,
		"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch", "image": "` + evil + `"}]}}}}}}`
	for _, test := range []struct {
		stdin string
		args  []string
	}{
		{manifest, []string{"validate", "-f", "-"}},
		{mild, []string{"validate", "-f", "-"}},
		{`{"kind": "\u001b[2J"`, []string{"validate", "-f", "-"}},
		{"kind: \x1b[2J", []string{"validate", "-f", "-"}},
		{mild, []string{"render", "-f", "-"}},
		{mild, []string{"render", "-f", "-", "-o", "json"}},
		{manifest, []string{"run", "-f", "-"}},
		{kubeflow, []string{"convert", "-f", "-"}},
		{"", []string{"get", "\x1b[2J"}},
		{"", []string{"\x1b[2J"}},
		{"", []string{"get", "-o", "\xff[31m"}},
		{"", []string{"validate", "-f", "\x1b[2J\xff[31m"}},
	} {
		out, errOut, _ := call(t, test.stdin, test.args...)
		if out+errOut == "" {
			t.Errorf("t9k %q writes nothing", test.args)
		}
		if strings.ContainsAny(out+errOut, "\x1b\x07\u009b") || strings.Contains(out+errOut, "\xff") {
			t.Errorf("t9k %q wrote %q", test.args, out+errOut)
		}
	}
	file := filepath.Join(t.TempDir(), "a\x1b[2J.yaml")
	if err := os.WriteFile(file, []byte(mild), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, _, code := call(t, "", "validate", "-f", file); code != 0 || !strings.Contains(out, `a\u001b[2J.yaml:1: genericjob/evil is valid`) {
		t.Errorf("exit code %d, output %q", code, out)
	}
}
