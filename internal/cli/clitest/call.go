package clitest

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// Main is the type of cli.Main. Tests pass the function to Call, because this package cannot import package cli: cli
// imports the verbs, whose tests import this package.
type Main func(ctx context.Context, args []string, streams genericiooptions.IOStreams) int

// Call runs the program with an empty home directory and without a cluster. It returns the program's output and exit
// code.
func Call(t *testing.T, program Main, stdin string, args ...string) (out, errOut string, code int) {
	t.Helper()
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_STATE_HOME", filepath.Join(home, "state"))
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	var o, e bytes.Buffer
	code = program(t.Context(), append([]string{"t9k"}, args...), genericiooptions.IOStreams{In: strings.NewReader(stdin), Out: &o, ErrOut: &e})
	return o.String(), e.String(), code
}

// Transcript returns a command line with its output and exit code as text for a golden file. Lines of standard error
// begin with "stderr: ".
func Transcript(args []string, out, errOut string, code int) string {
	var errors strings.Builder
	for l := range strings.Lines(errOut) {
		errors.WriteString("stderr: " + l)
	}
	return fmt.Sprintf("$ t9k %s\n%s%s[exit code %d]\n", strings.Join(args, " "), out, &errors, code)
}
