package require_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"tensorstack.dev/batch/internal/testing/require"
)

const inner = "T9K_REQUIRE_TEST_INNER"

// TestInner calls Missing if TestMissingSkipsUnlessEverythingIsRequired runs it, in a separate process, because a
// test cannot observe its own result. Otherwise it does nothing.
func TestInner(t *testing.T) {
	if os.Getenv(inner) == "" {
		return
	}
	require.Missing(t, "a unicorn")
}

func TestMissingSkipsUnlessEverythingIsRequired(t *testing.T) {
	for _, tc := range []struct {
		name, all, want string
		fails           bool
	}{
		{name: "skips with what is missing", want: "--- SKIP: TestInner"},
		{name: "fails where everything is required", all: "1", want: "--- FAIL: TestInner", fails: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestInner$", "-test.v")
			cmd.Env = append(os.Environ(), inner+"=1", require.AllEnv+"="+tc.all)
			out, err := cmd.CombinedOutput()
			if (err != nil) != tc.fails {
				t.Errorf("error %v, want a failure: %t", err, tc.fails)
			}
			for _, want := range []string{tc.want, "missing: a unicorn"} {
				if !strings.Contains(string(out), want) {
					t.Errorf("output lacks %q:\n%s", want, out)
				}
			}
		})
	}
}
