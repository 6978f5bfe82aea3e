package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// checksumFile is the file with the checksums of a release, for `sha256sum --check`.
const checksumFile = "SHA256SUMS"

// packed is a file to add to an archive.
type packed struct {
	name string
	data []byte
	mode os.FileMode
}

// archive writes programs and licences into one archive: a zip if the name ends in .zip, otherwise a tar.gz.
func (r *release) archive(name string, programs ...string) error {
	var files []packed
	for _, path := range programs {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files = append(files, packed{filepath.Base(path), data, 0o755})
	}
	texts, err := r.licenseTexts()
	if err != nil {
		return err
	}
	files = append(files, packed{licenseFile, texts[licenseFile], 0o644}, packed{noticesFile, texts[noticesFile], 0o644})
	pack := r.tarball
	if strings.HasSuffix(name, ".zip") {
		pack = r.zip
	}
	data, err := pack(files)
	if err != nil {
		return fmt.Errorf("packing %s: %w", name, err)
	}
	return r.write(name, data)
}

func (r *release) tarball(files []packed) ([]byte, error) {
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	w := tar.NewWriter(compressed)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: int64(f.mode), Size: int64(len(f.data)), ModTime: r.created}
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
	if err := compressed.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func (r *release) zip(files []packed) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: r.created}
		header.SetMode(f.mode)
		entry, err := w.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := entry.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// checksums writes the SHA-256 of every file that users download.
func (r *release) checksums(context.Context) error {
	var lines []string
	for _, pattern := range []string{"t9k-*", krewFile, "images/*.tar", valuesFile, "sbom/*"} {
		paths, err := filepath.Glob(filepath.Join(r.out, pattern))
		if err != nil {
			return err
		}
		for _, path := range paths {
			sum, err := sha256Of(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(r.out, path)
			if err != nil {
				return err
			}
			lines = append(lines, sum+"  "+filepath.ToSlash(name)+"\n")
		}
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	return r.write(checksumFile, []byte(strings.Join(lines, "")))
}

func sha256Of(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}
