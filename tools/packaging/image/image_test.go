package image

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var (
	commit = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	spec   = Spec{Name: "hello", Title: "Says hello", Version: "v1.2.3", Revision: "abc", Source: "https://example.com", Licenses: "Apache-2.0", Created: commit,
		LicenseTexts: map[string][]byte{"LICENSE": []byte("ours"), "THIRD_PARTY_LICENSES": []byte("theirs")}}
	platforms = []v1.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}}
)

// compile builds testdata/hello for all platforms in a temporary directory.
func compile(t *testing.T) []Program {
	t.Helper()
	dir := t.TempDir()
	var programs []Program
	for _, p := range platforms {
		path := filepath.Join(dir, p.Architecture)
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", path, "./testdata/hello")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.OS, "GOARCH="+p.Architecture)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building testdata/hello: %v\n%s", err, out)
		}
		programs = append(programs, Program{Platform: p, Path: path})
	}
	return programs
}

func buildHello(t *testing.T) v1.ImageIndex {
	t.Helper()
	index, err := Build(spec, compile(t))
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// written writes an image in all formats to a directory and returns the directory.
func written(t *testing.T, index v1.ImageIndex) string {
	t.Helper()
	dir := t.TempDir()
	for _, err := range []error{
		WriteLayout(filepath.Join(dir, "layout"), index, reference),
		WriteArchive(filepath.Join(dir, "oci.tar"), filepath.Join(dir, "layout"), commit),
		WriteDockerArchive(filepath.Join(dir, "docker.tar"), index, platforms[1], reference),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const reference = "tensorstack/hello:v1.2.3"

func TestImageIsReproducibleAndComplete(t *testing.T) {
	index := buildHello(t)
	dir := written(t, index)
	t.Run("a second build has the same digest", func(t *testing.T) {
		again := buildHello(t)
		first, err := index.Digest()
		if err != nil {
			t.Fatal(err)
		}
		second, err := again.Digest()
		if err != nil || first != second {
			t.Errorf("digests %s and %s: %v", first, second, err)
		}
		for _, archive := range []string{"oci.tar", "docker.tar"} {
			first, err := checksum(filepath.Join(dir, archive))
			if err != nil {
				t.Fatal(err)
			}
			second, err := checksum(filepath.Join(written(t, again), archive))
			if err != nil || !bytes.Equal(first, second) {
				t.Errorf("two versions of %s: %v", archive, err)
			}
		}
	})
	t.Run("has the files that a program needs", func(t *testing.T) { checkIndex(t, index) })
	t.Run("the layout can be read", func(t *testing.T) { checkLayout(t, dir) })
	t.Run("docker's archive can be read", func(t *testing.T) { checkDockerArchive(t, filepath.Join(dir, "docker.tar")) })
	t.Run("a platform that was not built has no archive", func(t *testing.T) {
		if err := WriteDockerArchive(filepath.Join(t.TempDir(), "x"), index, v1.Platform{OS: "linux", Architecture: "s390x"}, reference); err == nil {
			t.Error("the archive exists")
		}
	})
}

func checkIndex(t *testing.T, index v1.ImageIndex) {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var got []v1.Platform
	for _, m := range manifest.Manifests {
		got = append(got, *m.Platform)
		img, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkImage(t, img, *m.Platform)
	}
	if diff := cmp.Diff(platforms, got); diff != "" {
		t.Errorf("platforms (-want +got)\n%s", diff)
	}
	if got := manifest.Annotations["org.opencontainers.image.version"]; got != "v1.2.3" {
		t.Errorf("the index has version %q", got)
	}
}

func checkImage(t *testing.T, img v1.Image, platform v1.Platform) {
	t.Helper()
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want := v1.Config{User: "65532:65532", Entrypoint: []string{"/hello"}, WorkingDir: "/", Labels: map[string]string{
		"org.opencontainers.image.title": "hello", "org.opencontainers.image.description": "Says hello",
		"org.opencontainers.image.version": "v1.2.3", "org.opencontainers.image.revision": "abc",
		"org.opencontainers.image.source": "https://example.com", "org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.created": "2026-11-22T12:00:00Z",
	}}
	if diff := cmp.Diff(want, config.Config); diff != "" {
		t.Errorf("%s: configuration (-want +got)\n%s", platform, diff)
	}
	if config.Architecture != platform.Architecture || !config.Created.Equal(commit) {
		t.Errorf("%s: architecture %s, created %s", platform, config.Architecture, config.Created)
	}
	files := contents(t, img)
	for path, mode := range map[string]int64{"hello": 0o755, RootsPath: 0o644, "usr/share/sbom/hello.cdx.json": 0o644, "licenses/LICENSE": 0o644, "licenses/THIRD_PARTY_LICENSES": 0o644} {
		f, ok := files[path]
		if !ok || f.mode != mode {
			t.Errorf("%s: %s has mode %o, exists: %t", platform, path, f.mode, ok)
		}
	}
	if len(files) != 5 {
		t.Errorf("%s: %d files", platform, len(files))
	}
	if ours, theirs := string(files["licenses/LICENSE"].data), string(files["licenses/THIRD_PARTY_LICENSES"].data); ours != "ours" || theirs != "theirs" {
		t.Errorf("%s: licences %q and %q", platform, ours, theirs)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(files[RootsPath].data) {
		t.Error("no certificate authorities can be read")
	}
	checkBill(t, files["usr/share/sbom/hello.cdx.json"].data)
}

func checkBill(t *testing.T, data []byte) {
	t.Helper()
	var bom cdx.BOM
	if err := json.Unmarshal(data, &bom); err != nil {
		t.Fatal(err)
	}
	if c := bom.Metadata.Component; c.Name != "hello" || c.Version != "v1.2.3" || len(*c.Hashes) != 1 {
		t.Errorf("bill of materials of %+v", c)
	}
	var libraries []string
	for _, c := range *bom.Components {
		libraries = append(libraries, c.Name)
	}
	if diff := cmp.Diff([]string{"std", "github.com/google/uuid"}, libraries); diff != "" {
		t.Errorf("libraries in the bill of materials (-want +got)\n%s", diff)
	}
}

// contents returns the regular files of an image and verifies that every file has the time of the commit and belongs to
// root.
func contents(t *testing.T, img v1.Image) map[string]file {
	t.Helper()
	in := mutate.Extract(img)
	defer in.Close()
	files := map[string]file{}
	for r := tar.NewReader(in); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if !header.ModTime.Equal(commit) || header.Uid != 0 || header.Gid != 0 {
			t.Errorf("%s has the time %s and the owner %d:%d", header.Name, header.ModTime, header.Uid, header.Gid)
		}
		if header.Typeflag == tar.TypeDir {
			continue
		}
		var data bytes.Buffer
		if _, err := io.Copy(&data, r); err != nil {
			t.Fatal(err)
		}
		files[header.Name] = file{data: data.Bytes(), mode: header.Mode}
	}
}

func checkLayout(t *testing.T, dir string) {
	t.Helper()
	unpacked := t.TempDir()
	if out, err := exec.Command("tar", "-C", unpacked, "-xf", filepath.Join(dir, "oci.tar")).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	read, err := layout.ImageIndexFromPath(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(read); err != nil {
		t.Error(err)
	}
	outer, err := read.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"io.containerd.image.name": "docker.io/tensorstack/hello:v1.2.3", "org.opencontainers.image.ref.name": "v1.2.3"}
	if diff := cmp.Diff(want, outer.Manifests[0].Annotations); diff != "" {
		t.Errorf("name of the image (-want +got)\n%s", diff)
	}
}

func checkDockerArchive(t *testing.T, path string) {
	t.Helper()
	tag, err := name.NewTag(reference)
	if err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(path, &tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(img); err != nil {
		t.Error(err)
	}
	if config, err := img.ConfigFile(); err != nil || config.Architecture != "arm64" {
		t.Errorf("the archive has %+v: %v", config, err)
	}
}
