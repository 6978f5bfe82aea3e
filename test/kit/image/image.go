// Package image writes container images from files of this machine, for tests on nodes that pull no images. Start
// reading at Write.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Image describes an image with one layer. All files belong to root.
type Image struct {
	// Names holds the full names of the image, each with its registry and tag. There is at least one.
	Names []string
	// Files maps paths in the image to files and directories of this machine. A directory is added with its contents.
	Files map[string]string
	// Links maps the paths of symbolic links to their targets.
	Links map[string]string
	// Entrypoint and Env are the default command and environment of a container.
	Entrypoint []string
	Env        []string
	// Skip reports whether to leave out a file or subdirectory of a directory, given its path on this machine. It may
	// be nil.
	Skip func(path string, entry fs.DirEntry) bool
}

// Write writes the image to a file in the format of `docker save`, which `ctr images import` reads.
func Write(path string, i Image) error {
	var layer bytes.Buffer
	w := &writer{tar.NewWriter(&layer), map[string]bool{}, i.Skip}
	if err := w.addAll(i); err != nil {
		return fmt.Errorf("writing the image %s: %w", i.Names[0], err)
	}
	sum := fmt.Sprintf("sha256:%x", sha256.Sum256(layer.Bytes()))
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": i.Entrypoint, "Env": i.Env},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{sum}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": i.Names, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	archive := tar.NewWriter(f)
	for _, part := range []struct {
		name string
		data []byte
	}{{"config.json", config}, {"layer.tar", layer.Bytes()}, {"manifest.json", manifest}} {
		err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: part.name, Mode: 0o644, Size: int64(len(part.data))})
		if err == nil {
			_, err = archive.Write(part.data)
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), f.Close())
}

// writer writes the layer of an image.
type writer struct {
	*tar.Writer
	made map[string]bool
	skip func(string, fs.DirEntry) bool
}

// addAll writes all files and links of the image, and a directory for temporary files. It then closes the archive.
func (w *writer) addAll(i Image) error {
	if err := w.folder("tmp", 0o1777); err != nil {
		return err
	}
	for to, from := range i.Files {
		if err := w.addTree(strings.Trim(to, "/"), from); err != nil {
			return err
		}
	}
	for path, target := range i.Links {
		path = strings.Trim(path, "/")
		if err := w.parents(path); err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: path, Linkname: target, Mode: 0o777}); err != nil {
			return err
		}
	}
	return w.Close()
}

// addTree writes the file or directory from, with its contents, at the path to. It resolves from if it is a symbolic
// link.
func (w *writer) addTree(to, from string) error {
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		return err
	}
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path != from && w.skip != nil && w.skip(path, entry) {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		name := filepath.Join(to, strings.TrimPrefix(path, from))
		switch {
		case entry.IsDir():
			return errors.Join(w.parents(name), w.folder(name, 0o755))
		case entry.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777})
		case entry.Type().IsRegular():
			return w.file(name, path)
		}
		return nil
	})
}

// file writes one file and the directories above it. All users may read the file.
func (w *writer) file(name, path string) error {
	if err := w.parents(name); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(info.Mode().Perm() | 0o444), Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

// parents writes the directories above a path.
func (w *writer) parents(name string) error {
	dir := filepath.Dir(name)
	if dir == "." {
		return nil
	}
	return errors.Join(w.parents(dir), w.folder(dir, 0o755))
}

// folder writes a directory, unless it has already been written.
func (w *writer) folder(name string, mode int64) error {
	if w.made[name] || name == "" || name == "." {
		return nil
	}
	w.made[name] = true
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode})
}
