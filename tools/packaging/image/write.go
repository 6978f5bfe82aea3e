package image

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// WriteLayout writes a multi-platform image as an OCI layout into a directory, which it replaces. The index of the
// layout names the image by its reference, as containerd and skopeo expect it.
func WriteLayout(dir string, index v1.ImageIndex, reference string) error {
	ref, err := name.NewTag(reference)
	if err != nil {
		return fmt.Errorf("naming an image: %w", err)
	}
	outer := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: index, Descriptor: v1.Descriptor{Annotations: map[string]string{
		"io.containerd.image.name":          strings.Replace(ref.Name(), name.DefaultRegistry, "docker.io", 1),
		"org.opencontainers.image.ref.name": ref.TagStr(),
	}}})
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if _, err := layout.Write(dir, outer); err != nil {
		return fmt.Errorf("writing OCI layout %s: %w", dir, err)
	}
	return nil
}

// WriteArchive writes the OCI layout in dir as one tar archive. All files in it have the time created.
func WriteArchive(path, dir string, created time.Time) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	err = filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || file == dir {
			return err
		}
		return addToArchive(w, dir, file, entry, created)
	})
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := w.Close(); err != nil {
		return err
	}
	return f.Close()
}

func addToArchive(w *tar.Writer, dir, file string, entry fs.DirEntry, created time.Time) error {
	relative, err := filepath.Rel(dir, file)
	if err != nil {
		return err
	}
	header := &tar.Header{Name: filepath.ToSlash(relative), ModTime: created, Format: tar.FormatPAX}
	if entry.IsDir() {
		header.Typeflag, header.Name, header.Mode = tar.TypeDir, header.Name+"/", 0o755
		return w.WriteHeader(header)
	}
	info, err := entry.Info()
	if err != nil {
		return err
	}
	header.Typeflag, header.Mode, header.Size = tar.TypeReg, 0o644, info.Size()
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(w, in)
	return err
}

// WriteDockerArchive writes the image of one platform in the format of `docker save`. It returns an error if the index
// has no image for the platform.
func WriteDockerArchive(path string, index v1.ImageIndex, platform v1.Platform, reference string) error {
	ref, err := name.NewTag(reference)
	if err != nil {
		return fmt.Errorf("naming an image: %w", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, m := range manifest.Manifests {
		if m.Platform == nil || !m.Platform.Equals(platform) {
			continue
		}
		img, err := index.Image(m.Digest)
		if err != nil {
			return err
		}
		if err := tarball.WriteToFile(path, ref, img); err != nil {
			return fmt.Errorf("writing %s: %w", path, err)
		}
		return nil
	}
	return fmt.Errorf("writing %s: %s has no image for %s", path, reference, platform)
}
