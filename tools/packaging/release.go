package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"tensorstack.dev/batch/tools/packaging/chart"
	"tensorstack.dev/batch/tools/packaging/image"
)

// all writes a release: images, programs, command lines, chart, manifest, bills of materials, krew's manifest and
// checksums.
func (r *release) all(ctx context.Context) error {
	if err := r.checkChangelog(); err != nil {
		return err
	}
	if err := r.clean(); err != nil {
		return err
	}
	steps := []func(context.Context) error{r.collectNotices, r.images, r.commandLines, r.servers, r.charts, r.krew, r.checksums}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	fmt.Println("Release", r.version, "is in", r.out)
	return nil
}

// clean removes the files of an earlier release from the output folder.
func (r *release) clean() error {
	for _, pattern := range []string{"images", "programs", "sbom", "t9k-*", checksumFile, krewFile} {
		paths, err := filepath.Glob(filepath.Join(r.out, pattern))
		if err != nil {
			return err
		}
		for _, path := range paths {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}

var tagged = regexp.MustCompile(`^v\d+\.\d+\.\d+$`)

// checkChangelog returns an error if a tagged version has no section in the changelog.
func (r *release) checkChangelog() error {
	if !tagged.MatchString(r.version) {
		return nil
	}
	data, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	if !strings.Contains(string(data), "\n## ["+strings.TrimPrefix(r.version, "v")+"]") {
		return fmt.Errorf("CHANGELOG.md has no section for %s", r.version)
	}
	return nil
}

// commandLines writes an archive and a bill of materials of the command line for each platform.
func (r *release) commandLines(ctx context.Context) error {
	for _, platform := range r.commandLineTargets {
		path, err := r.build(ctx, commandLine, platform)
		if err != nil {
			return err
		}
		if err := r.bill(path, commandLine, platform); err != nil {
			return err
		}
		if err := r.archive(r.commandLineArchive(platform), path); err != nil {
			return err
		}
	}
	return nil
}

// commandLineArchive returns the file name of the command line's archive.
func (r *release) commandLineArchive(platform v1.Platform) string {
	extension := ".tar.gz"
	if platform.OS == "windows" {
		extension = ".zip"
	}
	return "t9k-" + r.version + "-" + platform.OS + "-" + platform.Architecture + extension
}

// servers writes an archive of the servers' programs, and their bills of materials, for each of their platforms.
func (r *release) servers(ctx context.Context) error {
	for _, platform := range r.platforms {
		var paths []string
		for _, p := range programs {
			path, err := r.build(ctx, p, platform)
			if err != nil {
				return err
			}
			if err := r.bill(path, p, platform); err != nil {
				return err
			}
			paths = append(paths, path)
		}
		if err := r.archive("t9k-batch-"+r.version+"-"+platform.OS+"-"+platform.Architecture+".tar.gz", paths...); err != nil {
			return err
		}
	}
	return nil
}

// bill writes the bill of materials of a program.
func (r *release) bill(path string, p program, platform v1.Platform) error {
	data, err := image.Bill(path, p.name, r.version)
	if err != nil {
		return err
	}
	return r.write(filepath.Join("sbom", p.name+"-"+platform.OS+"-"+platform.Architecture+".cdx.json"), data)
}

// charts writes the chart, and for each edition a manifest for kubectl with the objects that the chart renders by
// default.
func (r *release) charts(context.Context) error {
	c, err := chart.Load(r.root, r.version, r.created)
	if err != nil {
		return err
	}
	if _, err := chart.Pack(c, r.out); err != nil {
		return fmt.Errorf("packing the chart: %w", err)
	}
	namespace, err := os.ReadFile(filepath.Join(r.root, "config", "operator", "namespace.yaml"))
	if err != nil {
		return err
	}
	for suffix, kubernetes := range chart.Editions {
		objects, err := chart.RenderFor(c, kubernetes)
		if err != nil {
			return err
		}
		manifest, err := chart.Manifest(objects)
		if err != nil {
			return err
		}
		if err := r.write("t9k-batch-"+r.version+suffix+".yaml", slices.Concat(namespace, manifest)); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) write(name string, data []byte) error {
	path := filepath.Join(r.out, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}
