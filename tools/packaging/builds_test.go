package main

import (
	"debug/macho"
	"debug/pe"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

var builds = flag.Bool("builds", false, "build the image of the operator twice, and the command line for macOS and Windows (make test-builds)")

// realRelease returns a release of the source at root, whose images are for one platform. Without -builds, it skips the
// test.
func realRelease(t *testing.T, root, platform string) *release {
	t.Helper()
	if !*builds {
		t.Skip("builds real programs: make test-builds")
	}
	r, err := parse("release", []string{"-root", root, "-out", t.TempDir(), "-version", "v0.0.0-test",
		"-created", "1790000000", "-platforms", platform,
		"-ldflags", "-s -w -X tensorstack.dev/batch/internal/version.Version=v0.0.0-test"})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.collectNotices(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// operatorImage builds the image of the operator, and returns the checksum of its archive.
func operatorImage(t *testing.T, r *release) string {
	t.Helper()
	dir := t.TempDir()
	i := slices.IndexFunc(programs, func(p program) bool { return p.name == "t9k-operator" })
	if err := r.image(t.Context(), programs[i], dir); err != nil {
		t.Fatal(err)
	}
	sum, err := sha256Of(filepath.Join(dir, "t9k-operator.oci.tar"))
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// TestBuildsOfAnImageAreTheSame verifies that two builds of the operator's image are equal, and that a build does not
// depend on its folder: the second build is from a copy of the source in another folder.
func TestBuildsOfAnImageAreTheSame(t *testing.T) {
	platform := "linux/" + runtime.GOARCH
	first := operatorImage(t, realRelease(t, "../..", platform))
	elsewhere := t.TempDir()
	copySource(t, "../..", elsewhere)
	if second := operatorImage(t, realRelease(t, elsewhere, platform)); first != second {
		t.Errorf("the archives of the two builds are %s and %s", first, second)
	}
}

// copySource copies the files of the source tree, without .git and the outputs of builds.
func copySource(t *testing.T, from, to string) {
	t.Helper()
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if slices.Contains([]string{".git", "bin", "bench", "dist"}, e.Name()) {
			continue
		}
		if e.IsDir() {
			err = os.CopyFS(filepath.Join(to, e.Name()), os.DirFS(filepath.Join(from, e.Name())))
		} else {
			var data []byte
			if data, err = fs.ReadFile(os.DirFS(from), e.Name()); err == nil {
				err = os.WriteFile(filepath.Join(to, e.Name()), data, 0o644)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestCommandLineBuildsForOtherSystems verifies that the command line can be built for macOS and Windows.
func TestCommandLineBuildsForOtherSystems(t *testing.T) {
	r := realRelease(t, "../..", "linux/"+runtime.GOARCH)
	path := func(os, arch string) string {
		t.Helper()
		file, err := r.build(t.Context(), commandLine, v1.Platform{OS: os, Architecture: arch})
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	mac, err := macho.Open(path("darwin", "arm64"))
	if err != nil {
		t.Fatal(err)
	}
	defer mac.Close()
	windows, err := pe.Open(path("windows", "amd64"))
	if err != nil {
		t.Fatal(err)
	}
	defer windows.Close()
	if mac.Cpu != macho.CpuArm64 || windows.Machine != pe.IMAGE_FILE_MACHINE_AMD64 {
		t.Errorf("the command lines are for %s and %#x", mac.Cpu, windows.Machine)
	}
}
