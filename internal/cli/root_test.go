package cli

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"tensorstack.dev/batch/internal/cli/clitest"
	"tensorstack.dev/batch/internal/testing/golden"
)

// call runs the program as from a shell without a kubeconfig, and returns its output and exit code.
func call(t *testing.T, stdin string, args ...string) (out, errOut string, code int) {
	t.Helper()
	return clitest.Call(t, Main, stdin, args...)
}

// TestFaults checks the messages for wrong command lines and for a missing cluster.
func TestFaults(t *testing.T) {
	var b strings.Builder
	for _, args := range [][]string{
		{"get"},
		{"run"},
		{"run", "-f", "missing.yaml"},
		{"run", "https:// example.com/job.yaml"},
		{"run", "http://example.com/job.yaml"},
		{"run", "https://127.0.0.1:1/job.yaml"},
		{"run", "../cli"},
		{"run", "testdata/validate/good.yaml", "--replace", "-o", "name"},
		{"rerun"},
		{"rerun", "mnist", "-o", "name"},
		{"top", "pods"},
		{"run", "-f", "testdata/validate/code.yaml"},
		{"run", "-f", "testdata/validate/good.yaml", "-o", "json"},
		{"get", "-o", "table"},
		{"get", "--watch", "-o", "json"},
		{"get", "mnist", "--watch", "-o", "wide"},
		{"get", "-l", "a in b"},
		{"get", "mnist", "-l", "a=b"},
		{"get", "-A", "mnist"},
		{"get", "trainingjob/mnist"},
		{"get", "--local=lab"},
		{"describe"},
		{"logs"},
		{"ui"},
		{"ui", "mnist"},
		{"pause"},
		{"scale", "mnist"},
		{"scale", "mnist", "many"},
		{"scale", "--", "mnist", "-1"},
		{"debug", "maybe", "mnist"},
		{"exec", "mnist"},
		{"exec", "mnist", "ls"},
		{"exec", "mnist", "worker-0", "--", "sh"},
		{"exec", "mnist", "--"},
		{"exec", "--", "ls"},
		{"delete"},
		{"delete", "mnist", "--all"},
		{"delete", "-l", "a=b", "--all"},
		{"delete", "-f", "testdata/validate/good.yaml", "mnist"},
		{"delete", "-f", "testdata/validate/code.yaml"},
		{"pause", "--all", "-l", "a b"},
		{"validate"},
		{"convert"},
		{"validate", "-f", "/dev/null"},
		{"frobnicate"},
		{"describ", "mnist"},
	} {
		out, errOut, code := call(t, "", args...)
		if code == 0 {
			t.Errorf("t9k %s: exit code 0", strings.Join(args, " "))
		}
		b.WriteString(clitest.Transcript(args, out, errOut, code) + "\n")
	}
	golden.Compare(t, "testdata/faults.txt", b.String())
}

func TestPluginHelpNamesTheKubectlCommand(t *testing.T) {
	var out bytes.Buffer
	code := Main(t.Context(), []string{"/usr/bin/kubectl-t9k", "get", "--help"}, genericiooptions.IOStreams{Out: &out, ErrOut: &out})
	if code != 0 || !strings.Contains(out.String(), "kubectl t9k get [JOB...]") || strings.Contains(out.String(), "  t9k get") {
		t.Errorf("exit code %d, help:\n%s", code, &out)
	}
}
