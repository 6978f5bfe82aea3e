// Package image builds the container images of this project without a container runtime. It is not a general builder:
// an image is one static program, certificate authorities, licences and a bill of materials. Two builds of the same
// program yield the same digest. Start reading at Build.
package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"sort"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// User is the user and the group of the program. The number is that of the user nonroot in distroless images.
	User = "65532:65532"
	// RootsPath is where Go and most other TLS clients look for certificate authorities.
	RootsPath = "etc/ssl/certs/ca-certificates.crt"
	// billDir holds the bill of materials of the program.
	billDir = "usr/share/sbom"
	// licenseDir holds the licence texts, where distributors look for them.
	licenseDir = "licenses"
)

// Spec describes an image.
type Spec struct {
	// Name is the name of the program, of its file in the root directory, and the last part of the image's name.
	Name string
	// Title says in one line what the program does.
	Title string
	// Version, Revision (a commit), Source (a URL) and Licenses (an SPDX expression) become labels of the image. An
	// empty one adds no label.
	Version  string
	Revision string
	Source   string
	Licenses string
	// LicenseTexts are the texts of the product's licence and of the licences of others, by file name.
	LicenseTexts map[string][]byte
	// Created is the time of everything in the image.
	Created time.Time
}

// Program is an executable built for one platform.
type Program struct {
	Platform v1.Platform
	// Path is the file on this machine.
	Path string
}

// Build returns a multi-platform image with one program per platform.
func Build(spec Spec, programs []Program) (v1.ImageIndex, error) {
	roots, err := Roots()
	if err != nil {
		return nil, err
	}
	rootsLayer, err := layer(spec.Created, map[string]file{RootsPath: {data: roots, mode: 0o644}})
	if err != nil {
		return nil, err
	}
	texts := map[string]file{}
	for name, data := range spec.LicenseTexts {
		texts[path.Join(licenseDir, name)] = file{data: data, mode: 0o644}
	}
	textsLayer, err := layer(spec.Created, texts)
	if err != nil {
		return nil, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range programs {
		img, err := build(spec, p, rootsLayer, textsLayer)
		if err != nil {
			return nil, fmt.Errorf("building the image of %s for %s: %w", spec.Name, p.Platform, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &p.Platform}})
	}
	return mutate.Annotations(index, spec.labels()).(v1.ImageIndex), nil
}

// build returns the image of one platform.
func build(spec Spec, p Program, roots, licenses v1.Layer) (v1.Image, error) {
	data, err := os.ReadFile(p.Path)
	if err != nil {
		return nil, err
	}
	bill, err := Bill(p.Path, spec.Name, spec.Version)
	if err != nil {
		return nil, err
	}
	program, err := layer(spec.Created, map[string]file{
		spec.Name: {data: data, mode: 0o755},
		path.Join(billDir, spec.Name+".cdx.json"): {data: bill, mode: 0o644},
	})
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.Append(img,
		mutate.Addendum{Layer: roots, History: v1.History{Created: v1.Time{Time: spec.Created}, CreatedBy: "certificate authorities of Mozilla"}},
		mutate.Addendum{Layer: licenses, History: v1.History{Created: v1.Time{Time: spec.Created}, CreatedBy: "licences"}},
		mutate.Addendum{Layer: program, History: v1.History{Created: v1.Time{Time: spec.Created}, CreatedBy: spec.Name + " " + spec.Version}})
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Created = v1.Time{Time: spec.Created}
	config.OS, config.Architecture, config.Variant = p.Platform.OS, p.Platform.Architecture, p.Platform.Variant
	config.Config = v1.Config{Entrypoint: []string{"/" + spec.Name}, User: User, WorkingDir: "/", Labels: spec.labels()}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return nil, err
	}
	return mutate.Annotations(img, spec.labels()).(v1.Image), nil
}

// labels returns the labels of the image, which are its annotations too.
func (s Spec) labels() map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.title":       s.Name,
		"org.opencontainers.image.description": s.Title,
		"org.opencontainers.image.version":     s.Version,
		"org.opencontainers.image.revision":    s.Revision,
		"org.opencontainers.image.source":      s.Source,
		"org.opencontainers.image.licenses":    s.Licenses,
		"org.opencontainers.image.created":     s.Created.UTC().Format(time.RFC3339),
	}
	for key, value := range labels {
		if value == "" {
			delete(labels, key)
		}
	}
	return labels
}

type file struct {
	data []byte
	mode int64
}

// layer returns a layer with files, which are given by path, and their directories. All of them belong to root.
func layer(created time.Time, files map[string]file) (v1.Layer, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	made := map[string]bool{}
	for _, name := range sortedKeys(files) {
		for _, dir := range parents(name) {
			if made[dir] {
				continue
			}
			made[dir] = true
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: created, Format: tar.FormatPAX}); err != nil {
				return nil, err
			}
		}
		f := files[name]
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: f.mode, Size: int64(len(f.data)), ModTime: created, Format: tar.FormatPAX}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	content := buffer.Bytes()
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

// parents returns the directories above a path, the topmost first.
func parents(name string) []string {
	parts := strings.Split(path.Dir(name), "/")
	var dirs []string
	for i := range parts {
		if dir := strings.Join(parts[:i+1], "/"); dir != "." {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}
