package upgrade

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tensorstack.dev/batch/internal/testing/require"
)

// TestLastReleaseIsFoundInAClone verifies that clones of this repository find the commit of the last release, with and
// without its tag, that a clone without the history does not mistake another commit for it, and that a release is not
// taken for its own predecessor.
func TestLastReleaseIsFoundInAClone(t *testing.T) {
	version, commit := ofThisRepository(t)
	check := func(t *testing.T, want string) {
		t.Helper()
		if v, c, err := lastRelease(); err != nil || v != version || c != want {
			t.Errorf("version %q, commit %q: %v, want %s, %s", v, c, err, version, want)
		}
	}
	t.Run("with the whole history", func(t *testing.T) {
		enterClone(t)
		check(t, commit)
		gitOf(t, "tag", "v"+version, "HEAD~1")
		check(t, gitOf(t, "rev-parse", "HEAD~1"))
	})
	t.Run("with the last two commits", func(t *testing.T) {
		enterClone(t, "--depth=2")
		if _, c, err := lastRelease(); err == nil || !strings.Contains(err.Error(), "not the whole history") {
			t.Errorf("commit %q: %v", c, err)
		}
		gitOf(t, "tag", "v"+version, "HEAD~1")
		check(t, gitOf(t, "rev-parse", "HEAD~1"))
	})
	t.Run("at the release itself", func(t *testing.T) {
		enterClone(t)
		gitOf(t, "tag", "v"+version)
		if _, c, err := lastRelease(); err == nil && c == gitOf(t, "rev-parse", "HEAD") {
			t.Error("this commit would be upgraded to itself")
		}
	})
}

// TestUpgradeNeedsTheLastRelease verifies that, with T9K_REQUIRE_ALL set, TestJobsSurviveUpgradeAndRemoval fails in a
// clone that lacks the last release.
func TestUpgradeNeedsTheLastRelease(t *testing.T) {
	require.Root(t)
	require.MountNamespaces(t)
	ofThisRepository(t)
	enterClone(t, "--depth=1")
	cmd := exec.Command(os.Args[0], "-test.run=^TestJobsSurviveUpgradeAndRemoval$", "-test.v", "-upgrade")
	cmd.Env = append(os.Environ(), require.AllEnv+"=1")
	out, err := cmd.CombinedOutput()
	want := regexp.MustCompile(`missing: the last release.*\(` + require.AllEnv + ` is set, so this is a failure\)`)
	if err == nil || !want.Match(out) {
		t.Errorf("error %v, want a failure that says that the last release is missing:\n%s", err, out)
	}
}

// ofThisRepository returns the version and the commit of the last release according to this repository. Without the
// history, it ends the test as require.Missing does.
func ofThisRepository(t *testing.T) (version, commit string) {
	t.Helper()
	version, commit, err := lastRelease()
	if err != nil {
		require.Missing(t, "the history of the repository: "+err.Error())
	}
	return version, commit
}

// enterClone clones this repository, without its tags, and makes the folder of this package in the clone the working
// directory. Of the files, the clone has only CHANGELOG.md.
func enterClone(t *testing.T, options ...string) {
	t.Helper()
	source, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "clone")
	gitOf(t, append(append([]string{"clone", "--quiet", "--no-checkout", "--no-tags"}, options...), "file://"+source, dir)...)
	if err := os.MkdirAll(filepath.Join(dir, "test", "upgrade"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Join(dir, "test", "upgrade"))
	gitOf(t, "checkout", "--quiet", "HEAD", "--", "CHANGELOG.md")
}

// gitOf runs git in this checkout, or in the clone that the test has entered, and returns its output.
func gitOf(t *testing.T, args ...string) string {
	t.Helper()
	out, err := git(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
