package upgrade

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tensorstack.dev/batch/internal/testing/require"
	"tensorstack.dev/batch/internal/testing/testenv"
)

// root is the root of this checkout.
const root = "../.."

var (
	withHelm = flag.Bool("upgrade", false, "run the test that upgrades an installation by Helm (make e2e-upgrade)")
	from     = flag.String("from", "", "commit or tag of the version to upgrade from; unset: the last release")
)

// release is a version of the product that can be installed.
type release struct {
	version  string         // version of the chart
	chart    string         // folder of the chart
	programs string         // folder with the programs
	pods     map[string]int // number of pods by program
}

// withoutConsole and withConsole are the numbers of pods of each program in a release without and with the console.
var (
	withoutConsole = map[string]int{"operator": 2, "scheduler": 2}
	withConsole    = map[string]int{"operator": 2, "scheduler": 2, "console": 1}
)

// git runs git in this checkout and returns its output without surrounding space.
func git(args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"-C", root}, args...)...)
	var problem bytes.Buffer
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(problem.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

var heading = regexp.MustCompile(`(?m)^## \[(\d+\.\d+\.\d+)\]`)

// lastRelease returns the version and the commit of the last release in CHANGELOG.md whose commit is not HEAD.
func lastRelease() (version, commit string, err error) {
	changelog, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return "", "", err
	}
	head, err := git("rev-parse", "HEAD")
	if err != nil {
		return "", "", err
	}
	for _, found := range heading.FindAllStringSubmatch(string(changelog), -1) {
		version = found[1]
		if commit, err = commitOf(version); err != nil || commit != head {
			return version, commit, err
		}
	}
	return "", "", errors.New("CHANGELOG.md names no release before this commit")
}

// commitOf returns the commit of a version: the commit of its tag or, without the tag, the commit that added its
// section of the changelog to this branch.
func commitOf(version string) (string, error) {
	if commit, err := git("rev-parse", "--verify", "--quiet", "v"+version+"^{commit}"); err == nil {
		return commit, nil
	}
	if shallow, err := git("rev-parse", "--is-shallow-repository"); err != nil || shallow == "true" {
		return "", errors.Join(fmt.Errorf("there is no tag v%s and not the whole history", version), err)
	}
	commit, err := git("log", "-1", "--first-parent", "-m", "--format=%H", "-S## ["+version+"]", "--", "CHANGELOG.md")
	if err == nil && commit == "" {
		err = fmt.Errorf("no commit has brought version %s to CHANGELOG.md", version)
	}
	return commit, err
}

// chosenRelease returns the commit that -from names, with the version 0.0.1. If -from is unset, it returns the
// version and the commit of the last release.
func chosenRelease() (version, commit string, err error) {
	if *from == "" {
		return lastRelease()
	}
	commit, err = git("rev-parse", "--verify", *from+"^{commit}")
	return "0.0.1", commit, err
}

// oldRelease returns the release to upgrade from. If the last release cannot be found, it returns this checkout as
// version 0.0.1, or fails the test if T9K_REQUIRE_ALL is set.
func oldRelease(t *testing.T) release {
	t.Helper()
	version, commit, err := chosenRelease()
	if err != nil && *from != "" {
		t.Fatal(err)
	}
	if err != nil && os.Getenv(require.AllEnv) != "" {
		require.Missing(t, fmt.Sprintf("the last release: %v", err))
	}
	if err != nil {
		t.Logf("missing: the last release: %v; the test upgrades from this checkout instead", err)
		r := thisRelease(t, "0.0.1")
		r.pods = withoutConsole
		return r
	}
	t.Logf("upgrading from %s, commit %s", version, commit)
	dir, err := buildCommit(commit)
	if err != nil {
		t.Fatal(err)
	}
	return release{version: version, chart: filepath.Join(dir, "charts/t9k-batch"), programs: filepath.Join(dir, "bin"), pods: withoutConsole}
}

// buildCommit builds the operator and the scheduler of a commit, once, in a folder of the user's cache. It returns
// this folder, which has the programs in bin and the commit's charts in charts.
func buildCommit(commit string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "t9k", "releases", commit)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("locking %s: %w", lock.Name(), err)
	}
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	source, err := os.MkdirTemp(filepath.Dir(dir), "building-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(source)
	script := `git -C "$1" archive "$2" | tar -x -C "$3"`
	if out, err := exec.Command("sh", "-c", script, "sh", root, commit, source).CombinedOutput(); err != nil {
		return "", fmt.Errorf("unpacking commit %s: %w: %s", commit, err, out)
	}
	built := filepath.Join(source, "built")
	if err := buildPrograms(source, filepath.Join(built, "bin"), withoutConsole); err != nil {
		return "", err
	}
	if err := os.Rename(filepath.Join(source, "charts"), filepath.Join(built, "charts")); err != nil {
		return "", err
	}
	return dir, os.Rename(built, dir)
}

// buildPrograms builds the programs that are keys of pods, from the source tree source, into the folder dir.
func buildPrograms(source, dir string, pods map[string]int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", testenv.LinkFlags, "-o", dir + "/"}
	for program := range pods {
		args = append(args, "./cmd/t9k-"+program)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the programs of %s: %w\n%s", source, err, out)
	}
	return nil
}

// thisRelease returns this checkout as a release with the given version. It uses the programs beside the t9k-local that
// T9K_LOCAL names, where `make build` puts them. If T9K_LOCAL is unset or a program is missing, it builds them.
func thisRelease(t *testing.T, version string) release {
	t.Helper()
	r := release{version: version, chart: filepath.Join(root, "charts/t9k-batch"), programs: filepath.Dir(os.Getenv("T9K_LOCAL")), pods: withConsole}
	for program := range r.pods {
		if _, err := os.Stat(filepath.Join(r.programs, "t9k-"+program)); err != nil || os.Getenv("T9K_LOCAL") == "" {
			r.programs = t.TempDir()
			if err := buildPrograms(root, r.programs, r.pods); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	return r
}

// anyoneMayRun returns the release with copies of its programs in a folder that every user may read, because the
// chart's pods run as an unprivileged user.
func (r release) anyoneMayRun(t *testing.T) release {
	t.Helper()
	dir, err := os.MkdirTemp("", "t9k-"+r.version+"-") //nolint:usetesting // the parents of t.TempDir can be read by their owner only
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	err = os.Chmod(dir, 0o755)
	for program := range r.pods {
		name := "t9k-" + program
		data, readErr := os.ReadFile(filepath.Join(r.programs, name))
		err = errors.Join(err, readErr, os.WriteFile(filepath.Join(dir, name), data, 0o755)) //nolint:gosec // it is a program
	}
	if err != nil {
		t.Fatal(err)
	}
	r.programs = dir
	return r
}
