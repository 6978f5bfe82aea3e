package main

import (
	"archive/tar"
	"archive/zip"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"helm.sh/helm/v4/pkg/chart/common"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"tensorstack.dev/batch/tools/packaging/chart"
)

// hello builds a small program and returns its content.
func hello(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hello")
	if out, err := exec.Command("go", "build", "-o", path, "./image/testdata/hello").CombinedOutput(); err != nil {
		t.Fatalf("building hello: %v\n%s", err, out)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// newRelease returns a release in a temporary directory. All its programs have the given content.
func newRelease(t *testing.T, content []byte, args ...string) *release {
	t.Helper()
	r, err := parse("release", append([]string{"-out", t.TempDir(), "-platforms", "linux/amd64", "-cli-platforms", "linux/amd64,darwin/arm64,windows/amd64",
		"-created", "1790000000", "-download-url", "https://example.com/dl"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	r.compile = func(_ context.Context, _ program, _ v1.Platform, path string) error {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		return os.WriteFile(path, content, 0o755)
	}
	return r
}

func TestReleaseHasArchivesChecksumsAndManifests(t *testing.T) {
	r := newRelease(t, hello(t), "-version", "v0.1.0")
	stale := filepath.Join(r.out, "t9k-v0.0.9-linux-amd64.tar.gz")
	for path, data := range map[string]string{stale: "of an older release", filepath.Join(r.out, "mine.txt"): "not ours"} {
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.all(t.Context()); err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(r.out, checksumFile))
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for line := range strings.Lines(string(sums)) {
		listed = append(listed, strings.Fields(line)[1])
	}
	if diff := cmp.Diff([]string{
		"images/t9k-console-linux-amd64.docker.tar", "images/t9k-console.oci.tar",
		"images/t9k-operator-linux-amd64.docker.tar", "images/t9k-operator.oci.tar",
		"images/t9k-scheduler-linux-amd64.docker.tar", "images/t9k-scheduler.oci.tar", "images/values.yaml",
		"krew.yaml",
		"sbom/t9k-console-linux-amd64.cdx.json", "sbom/t9k-darwin-arm64.cdx.json", "sbom/t9k-linux-amd64.cdx.json", "sbom/t9k-local-linux-amd64.cdx.json",
		"sbom/t9k-operator-linux-amd64.cdx.json", "sbom/t9k-scheduler-linux-amd64.cdx.json", "sbom/t9k-windows-amd64.cdx.json",
		"t9k-batch-0.1.0.tgz", "t9k-batch-v0.1.0-before-1.34.yaml", "t9k-batch-v0.1.0-before-1.36.yaml", "t9k-batch-v0.1.0-linux-amd64.tar.gz",
		"t9k-batch-v0.1.0.yaml",
		"t9k-v0.1.0-darwin-arm64.tar.gz", "t9k-v0.1.0-linux-amd64.tar.gz", "t9k-v0.1.0-windows-amd64.zip",
	}, listed); diff != "" {
		t.Errorf("files with a checksum (-want +got)\n%s", diff)
	}
	check := exec.Command("sha256sum", "--check", "--strict", checksumFile)
	check.Dir = r.out
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(r.out, "mine.txt")); err != nil {
		t.Error(err)
	}
	t.Run("archives", func(t *testing.T) { checkArchives(t, r) })
	t.Run("images", func(t *testing.T) { checkImages(t, r) })
	t.Run("manifest of krew", func(t *testing.T) { checkKrew(t, r) })
	t.Run("manifests for kubectl", func(t *testing.T) { checkManifests(t, r) })
}

// checkManifests checks that the manifests have the objects and rules that their versions of Kubernetes accept.
func checkManifests(t *testing.T, r *release) {
	t.Helper()
	for _, test := range []struct {
		name                string
		policies, rankRules bool
	}{{"t9k-batch-v0.1.0.yaml", true, true}, {"t9k-batch-v0.1.0-before-1.36.yaml", false, true}, {"t9k-batch-v0.1.0-before-1.34.yaml", false, false}} {
		data, err := os.ReadFile(filepath.Join(r.out, test.name))
		if err != nil {
			t.Fatal(err)
		}
		for part, want := range map[string]bool{
			"kind: Namespace\n": true, "image: tensorstack/t9k-operator:v0.1.0\n": true, "image: tensorstack/t9k-scheduler:v0.1.0\n": true,
			"kind: MutatingAdmissionPolicy\n": test.policies, "r[t][i].contains(": test.rankRules, // part of a rule that reads ranks
		} {
			if strings.Contains(string(data), part) != want {
				t.Errorf("%s contains %q: %t, want %t", test.name, part, !want, want)
			}
		}
	}
}

func checkArchives(t *testing.T, r *release) {
	t.Helper()
	out, err := exec.Command("tar", "-tzvf", filepath.Join(r.out, "t9k-batch-v0.1.0-linux-amd64.tar.gz")).CombinedOutput()
	if err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		names = append(names, fields[0]+" "+fields[len(fields)-1])
	}
	want := []string{"-rwxr-xr-x t9k-operator", "-rwxr-xr-x t9k-scheduler", "-rwxr-xr-x t9k-console", "-rwxr-xr-x t9k-local", "-rw-r--r-- LICENSE", "-rw-r--r-- THIRD_PARTY_LICENSES"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("programs (-want +got)\n%s", diff)
	}
	windows, err := zip.OpenReader(filepath.Join(r.out, "t9k-v0.1.0-windows-amd64.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer windows.Close()
	names = nil
	for _, f := range windows.File {
		names = append(names, f.Name)
	}
	if !slices.Equal(names, []string{"t9k.exe", "LICENSE", "THIRD_PARTY_LICENSES"}) {
		t.Errorf("the archive for Windows has %v", names)
	}
}

// checkImages verifies that each image has the licences, and is the same if only the images are built.
func checkImages(t *testing.T, r *release) {
	t.Helper()
	alone := *r
	alone.out, alone.notices = t.TempDir(), nil
	if err := alone.allImages(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"t9k-operator", "t9k-scheduler", "t9k-console"} {
		archive := filepath.Join("images", name+"-linux-amd64.docker.tar")
		img, err := tarball.ImageFromPath(filepath.Join(r.out, archive), nil)
		if err != nil {
			t.Fatal(err)
		}
		texts := unpack(t, img, "licenses/")
		if !strings.Contains(texts["licenses/LICENSE"], "Apache License") {
			t.Errorf("%s lacks our licence", name)
		}
		if theirs := texts["licenses/THIRD_PARTY_LICENSES"]; theirs != string(r.notices) || !strings.Contains(theirs, "\nk8s.io/client-go ") {
			t.Errorf("%s lacks the licences of others: %d bytes", name, len(theirs))
		}
		first, err := sha256Of(filepath.Join(r.out, archive))
		if err != nil {
			t.Fatal(err)
		}
		if second, err := sha256Of(filepath.Join(alone.out, archive)); err != nil || first != second {
			t.Errorf("two versions of %s: %v", archive, err)
		}
	}
}

// TestImagesComeWithTheirValues verifies that the chart, with the values that are written beside the images, uses
// exactly these images. The version may consist of digits, as an abbreviated commit can, and the names of the images
// may have another prefix.
func TestImagesComeWithTheirValues(t *testing.T) {
	for _, version := range []string{"v0.1.0", "0123456", "12e4567", "v0.1.0-3-gabcdef0-dirty"} {
		r := newRelease(t, nil, "-version", version, "-registry", "registry.example.com/mine")
		data, err := r.imageValues()
		if err != nil {
			t.Fatal(err)
		}
		values, err := common.ReadValues(data)
		if err != nil {
			t.Fatal(err)
		}
		values["console"].(map[string]any)["enabled"] = true
		c, err := chart.Load(r.root, "v9.9.9", r.created)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := chart.Render(c, values)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range objects {
			if o.GetKind() == "Deployment" {
				got = append(got, imagesOf(t, o)...)
			}
		}
		slices.Sort(got)
		prefix := "registry.example.com/mine/"
		if diff := cmp.Diff([]string{prefix + "t9k-console:" + version, prefix + "t9k-operator:" + version, prefix + "t9k-scheduler:" + version}, got); diff != "" {
			t.Errorf("images of the chart with the values (-want +got)\n%s", diff)
		}
	}
}

// imagesOf lists the images of a Deployment.
func imagesOf(t *testing.T, o *unstructured.Unstructured) []string {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range containers {
		names = append(names, c.(map[string]any)["image"].(string))
	}
	return names
}

// unpack returns the regular files of an image whose paths have a prefix.
func unpack(t *testing.T, img v1.Image, prefix string) map[string]string {
	t.Helper()
	in := mutate.Extract(img)
	defer in.Close()
	files := map[string]string{}
	for r := tar.NewReader(in); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeReg || !strings.HasPrefix(header.Name, prefix) {
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(data)
	}
}

func checkKrew(t *testing.T, r *release) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.out, krewFile))
	if err != nil {
		t.Fatal(err)
	}
	var plugin struct {
		Metadata struct{ Name string }
		Spec     struct {
			Version   string
			Platforms []struct{ URI, SHA256, Bin string }
		}
	}
	if err := yaml.Unmarshal(data, &plugin); err != nil {
		t.Fatal(err)
	}
	if plugin.Metadata.Name != "t9k" || plugin.Spec.Version != "v0.1.0" || len(plugin.Spec.Platforms) != 3 {
		t.Errorf("plug-in %+v", plugin)
	}
	for _, p := range plugin.Spec.Platforms {
		archive, ok := strings.CutPrefix(p.URI, "https://example.com/dl/")
		sum, err := sha256Of(filepath.Join(r.out, archive))
		if !ok || err != nil || sum != p.SHA256 {
			t.Errorf("%s has checksum %s, the manifest has %s: %v", p.URI, sum, p.SHA256, err)
		}
		if windows := strings.Contains(archive, "windows"); windows != (p.Bin == "t9k.exe") {
			t.Errorf("%s has the program %s", archive, p.Bin)
		}
	}
}

func TestTaggedVersionNeedsAChangelogSection(t *testing.T) {
	for version, want := range map[string]bool{"v0.1.0": true, "v99.0.0": false, "v99.0.0-3-gabc": true, "devel": true} {
		if err := newRelease(t, nil, "-version", version).checkChangelog(); (err == nil) != want {
			t.Errorf("%s: %v", version, err)
		}
	}
}

func TestPlatformsAreParsed(t *testing.T) {
	got, err := parsePlatforms("linux/amd64,linux/arm64")
	if err != nil || len(got) != 2 || got[1].Architecture != "arm64" {
		t.Errorf("got %v: %v", got, err)
	}
	for _, bad := range []string{"", "linux", "linux/"} {
		if _, err := parsePlatforms(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
