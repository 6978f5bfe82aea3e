package schedulercmd

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestHelpShowsActualDefaults verifies that the default of each flag in --help is the value that the program uses
// without the flag.
func TestHelpShowsActualDefaults(t *testing.T) {
	cmd := NewCommand()
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "feature-gates" && f.DefValue != f.Value.String() {
			t.Errorf("--%s: --help shows %q, and the value is %q", f.Name, f.DefValue, f.Value)
		}
	})
	help := cmd.UsageString()
	for _, part := range []string{"(default 1000)", "(default 2000)", "NominatedNodeNameForExpectation=true|false (BETA - default=false)"} {
		if !strings.Contains(help, part) {
			t.Errorf("--help lacks %q", part)
		}
	}
}

func TestVersionFlag(t *testing.T) {
	cmd := NewCommand()
	var out strings.Builder
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--version"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), "t9k-scheduler devel (kube-scheduler v") {
		t.Errorf("--version prints %q", out.String())
	}
}
