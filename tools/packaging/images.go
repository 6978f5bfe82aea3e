package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"tensorstack.dev/batch/tools/packaging/image"
)

// allImages writes only the images and their values, without the rest of a release.
func (r *release) allImages(ctx context.Context) error {
	if err := r.collectNotices(ctx); err != nil {
		return err
	}
	return r.images(ctx)
}

// images builds the programs that have images, and writes their images as OCI layouts and as archives, and the values
// of the chart for them.
func (r *release) images(ctx context.Context) error {
	dir := filepath.Join(r.out, "images")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, p := range programs {
		if !p.image {
			continue
		}
		if err := r.image(ctx, p, dir); err != nil {
			return err
		}
	}
	values, err := r.imageValues()
	if err != nil {
		return err
	}
	return r.write(valuesFile, values)
}

// valuesFile is the file with the names and the tag of the images, as values of the chart.
const valuesFile = "images/values.yaml"

// imageValues returns the values with which the chart uses the images. Users need a file for them, because a tag of
// digits that is set on the command line becomes a number, which the chart refuses.
func (r *release) imageValues() ([]byte, error) {
	values := map[string]any{"image": map[string]any{"tag": r.version}}
	for _, p := range programs {
		if p.image {
			component := strings.TrimPrefix(p.name, "t9k-")
			values[component] = map[string]any{"image": map[string]any{"repository": r.registry + "/" + p.name}}
		}
	}
	data, err := yaml.Marshal(values)
	if err != nil {
		return nil, fmt.Errorf("writing the values of the images: %w", err)
	}
	return append([]byte("# Values with which the chart uses the images beside this file: helm install --values dist/images/values.yaml\n"), data...), nil
}

func (r *release) image(ctx context.Context, p program, dir string) error {
	var built []image.Program
	for _, platform := range r.platforms {
		path, err := r.build(ctx, p, platform)
		if err != nil {
			return err
		}
		built = append(built, image.Program{Platform: platform, Path: path})
	}
	texts, err := r.licenseTexts()
	if err != nil {
		return err
	}
	index, err := image.Build(image.Spec{Name: p.name, Title: p.title, Version: r.version, Revision: r.revision,
		Source: source, Licenses: "Apache-2.0", LicenseTexts: texts, Created: r.created}, built)
	if err != nil {
		return err
	}
	reference := r.registry + "/" + p.name + ":" + r.version
	layout := filepath.Join(dir, p.name)
	if err := image.WriteLayout(layout, index, reference); err != nil {
		return err
	}
	if err := image.WriteArchive(filepath.Join(dir, p.name+".oci.tar"), layout, r.created); err != nil {
		return err
	}
	for _, b := range built {
		suffix := "-" + b.Platform.OS + "-" + b.Platform.Architecture
		if err := image.WriteDockerArchive(filepath.Join(dir, p.name+suffix+".docker.tar"), index, b.Platform, reference); err != nil {
			return err
		}
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s@%s\n", reference, digest)
	return nil
}
