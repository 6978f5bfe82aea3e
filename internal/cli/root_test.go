package cli

import (
	"bytes"
	"strings"
	"syscall"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"tensorstack.dev/batch/internal/cli/clitest"
	"tensorstack.dev/batch/internal/testing/golden"
)

// call runs the program with an empty home directory and without a cluster, and returns its output and exit code.
func call(t *testing.T, stdin string, args ...string) (out, errOut string, code int) {
	t.Helper()
	return clitest.Call(t, Main, stdin, args...)
}

// TestWrongCommandLinesAreExplained verifies the messages for wrong command lines and for a missing cluster.
func TestWrongCommandLinesAreExplained(t *testing.T) {
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
		{"run", "mnist.yaml", "--image", "busybox"},
		{"run", "mnist.yaml", "--", "true"},
		{"run", "--name", "mnist"},
		{"run", "--", "true"},
		{"run", "--name", "mnist", "--image", "busybox", "--replicas", "0"},
		{"run", "--name", "mnist", "--image", "busybox", "--kind", "torch"},
		{"run", "--name", "mnist", "--image", "busybox", "--gpus", "two"},
		{"run", "--name", "mnist", "--image", "busybox", "--gpus", "gpu=2"},
		{"run", "--name", "mnist", "--image", "busybox", "--cpu", "many"},
		{"run", "--name", "mnist", "--image", "busybox", "--memory", "-1Gi"},
		{"run", "--name", "mnist", "--image", "busybox", "--env", "RATE"},
		{"run", "--name", "mnist", "--image", "busybox", "--env", "RATE=1", "--env", "RATE=2"},
		{"run", "--name", "MNIST", "--image", "busybox", "--dry-run"},
		{"run", "--name", "mnist", "--image", "busybox", "--dry-run", "--detach"},
		{"run", "--name", "mnist", "--image", "busybox", "--dry-run", "-o", "name"},
		{"run", "mnist.yaml", "--dry-run"},
		{"run", "mnist.yaml", "--logs", "some"},
		{"run", "mnist.yaml", "--logs", "all", "--detach"},
		{"submit", "mnist.yaml"},
		{"rerun"},
		{"rerun", "mnist", "-o", "name"},
		{"sweep", "-f", "testdata/sweep/job.yaml"},
		{"sweep", "-f", "testdata/sweep/job.yaml", "--set", "lr"},
		{"sweep", "-f", "testdata/sweep/job.yaml", "--set", "1st=1"},
		{"sweep", "-f", "testdata/sweep/job.yaml", "--set", "lr="},
		{"sweep", "-f", "testdata/sweep/job.yaml", "--set", "lr=1,,2"},
		{"sweep", "-f", "testdata/sweep/job.yaml", "--set", "seed=1-3,2"},
		{"sweep", "-f", "testdata/sweep/job.yaml", "--set", "seed=5-1"},
		{"sweep", "-f", "testdata/sweep/job.yaml", "--set", "seed=1-100000"},
		{"sweep", "-f", "testdata/sweep/job.yaml", "--set", "seed=1-500", "--set", "lr=0.1,0.01,0.001"},
		{"sweep", "-f", "testdata/sweep/job.yaml", "--set", "lr=0.1", "--set", "lr=0.01"},
		{"sweep", "-f", "testdata/sweep/job.yaml", "--set", "lr=0.1", "--set", "n=1,none"},
		{"sweep", "-f", "testdata/sweep/job.yaml", "--set", "lr=0.1", "--set", "n=1,0"},
		{"sweep", "-f", "testdata/sweep/job.yaml", "--set", "lr=0.1", "--set", "n=1", "--set", "MODE=fast"},
		{"sweep", "-f", "testdata/sweep/job.yaml", "--set", "lr=0.1", "--set", "n=1", "--name", "My_Sweep"},
		{"sweep", "-f", "testdata/sweep/job.yaml", "--set", "lr=0.1", "--set", "n=1"},
		{"sweep", "-f", "testdata/sweep/job.yaml", "--set", "lr=0.1", "--parallel", "-1"},
		{"sweep", "-f", "testdata/sweep/job.yaml", "--set", "lr=0.1", "--parallel", "2", "--detach"},
		{"sweep", "-f", "testdata/sweep/job.yaml", "mnist"},
		{"sweep", "-f", "testdata/sweep/two.yaml", "--set", "lr=0.1"},
		{"sweep", "-f", "testdata/sweep/other.yaml", "--set", "lr=0.1"},
		{"sweep", "-f", "testdata/sweep/expires.yaml", "--set", "lr=0.1"},
		{"sweep", "-f", "missing.yaml", "--set", "lr=0.1"},
		{"sweep", "mnist", "--set", "lr=0.1"},
		{"sweep", "mnist", "resnet"},
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
	golden.Compare(t, "testdata/errors.txt", b.String())
}

func TestPluginHelpNamesTheKubectlCommand(t *testing.T) {
	var out bytes.Buffer
	code := Main(t.Context(), []string{"/usr/bin/kubectl-t9k", "get", "--help"}, genericiooptions.IOStreams{Out: &out, ErrOut: &out})
	if code != 0 || !strings.Contains(out.String(), "kubectl t9k get [JOB...]") || strings.Contains(out.String(), "  t9k get") {
		t.Errorf("exit code %d, help:\n%s", code, &out)
	}
}

// TestVersionIsAVerbAndAFlag verifies that --version, which all programs have, prints the same text as the verb.
func TestVersionIsAVerbAndAFlag(t *testing.T) {
	verb, _, _ := call(t, "", "version")
	flag, errOut, code := call(t, "", "--version")
	if code != 0 || errOut != "" || flag != verb || !strings.HasPrefix(flag, "t9k ") {
		t.Errorf("exit code %d: %q %q, want %q", code, flag, errOut, verb)
	}
}

// fullDisk is a file on a full disk.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestLostOutputIsAnError verifies that the program fails if it cannot write its output, including output of functions
// that ignore errors of writes.
func TestLostOutputIsAnError(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"--version"}, {"help"}, {"validate", "-f", "testdata/validate/good.yaml"},
		{"render", "-f", "testdata/validate/good.yaml"}} {
		var errOut bytes.Buffer
		code := Main(t.Context(), append([]string{"t9k"}, args...), genericiooptions.IOStreams{In: strings.NewReader(""), Out: fullDisk{}, ErrOut: &errOut})
		if code != 1 || !strings.Contains(errOut.String(), "no space left on device") {
			t.Errorf("t9k %s: exit code %d, %s", strings.Join(args, " "), code, &errOut)
		}
	}
}

// TestJobsDescribedByFlags verifies the manifests of jobs that flags describe, and that "validate" accepts them.
func TestJobsDescribedByFlags(t *testing.T) {
	var b strings.Builder
	for _, args := range [][]string{
		{"--name", "hello", "--image", "busybox", "--", "echo", "hello"},
		{"--name", "tool", "--image", "registry.example.com/tool@sha256:" + strings.Repeat("0", 64), "--gpus", "0"},
		{"--name", "mnist", "--image", "pytorch/pytorch", "--kind", "pytorch", "--replicas", "4", "--gpus", "2", "--cpu", "8", "--memory", "64Gi",
			"--queue", "research", "--env", "RATE=0.1", "--env", "NOTE=a=b: #c", "--", "python", "train.py", "--epochs", "10"},
		{"--name", "mnist", "--image", "tensorflow/tensorflow", "--kind", "tensorflow", "--gpus", "amd.com/gpu=1", "--", "sh", "-c", "echo \"$HOME\"\nexit 3"},
	} {
		args = append([]string{"run", "--dry-run"}, args...)
		out, errOut, code := call(t, "", args...)
		if out2, errOut2, code2 := call(t, out, "validate", "-f", "-"); code2 != 0 {
			t.Errorf("validate refuses the manifest of %v: %s%s", args, out2, errOut2)
		}
		b.WriteString(clitest.Transcript(args, out, errOut, code) + "\n")
	}
	args := []string{"run", "--dry-run", "-o", "json", "--name", "hello", "--image", "busybox", "--", "true"}
	out, errOut, code := call(t, "", args...)
	b.WriteString(clitest.Transcript(args, out, errOut, code) + "\n")
	golden.Compare(t, "testdata/flags.txt", b.String())
}

// TestSweepManifests verifies the jobs of a sweep, and that their names depend only on their settings.
func TestSweepManifests(t *testing.T) {
	const file = "testdata/sweep/job.yaml"
	args := []string{"sweep", "-f", file, "--dry-run", "--set", "lr=0.1,1e-3", "--set", "n=2"}
	out, errOut, code := call(t, "", args...)
	golden.Compare(t, "testdata/sweep/jobs.txt", clitest.Transcript(args, out, errOut, code))
	if out, errOut, code := call(t, out, "validate", "-f", "-"); code != 0 {
		t.Errorf("validate refuses the jobs: %s%s", out, errOut)
	}
	for _, more := range [][]string{
		{"--set", "n=1-3", "--set", "lr=1e-3,1,0.1"}, // in another order, and with more values
	} {
		all, _, _ := call(t, "", append([]string{"sweep", "-f", file, "--dry-run"}, more...)...)
		for _, name := range names(out) {
			if !strings.Contains(all, name) {
				t.Errorf("%v has no job with %q", more, name)
			}
		}
		if n := len(names(all)); n != 9 {
			t.Errorf("%v makes %d jobs", more, n)
		}
	}
}

// names returns the lines of YAML that name jobs of the sweep.
func names(manifests string) []string {
	var all []string
	for line := range strings.Lines(manifests) {
		if strings.HasPrefix(line, "  name: mnist-") {
			all = append(all, line)
		}
	}
	return all
}
