package main

import (
	"context"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"tensorstack.dev/batch/tools/packaging/chart"
)

// krewFile is the file with the manifest of the kubectl plug-in.
const krewFile = "krew.yaml"

// krew writes the manifest with which krew installs the command line as `kubectl t9k`.
func (r *release) krew(context.Context) error {
	var platforms []any
	for _, platform := range r.commandLineTargets {
		archive := r.commandLineArchive(platform)
		sum, err := sha256Of(filepath.Join(r.out, archive))
		if err != nil {
			return err
		}
		program := commandLine.name
		if platform.OS == "windows" {
			program += ".exe"
		}
		platforms = append(platforms, map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"os": platform.OS, "arch": platform.Architecture}},
			"uri":      r.downloads + "/" + archive,
			"sha256":   sum,
			"bin":      program,
			"files":    []any{map[string]any{"from": program, "to": "."}, map[string]any{"from": licenseFile, "to": "."}, map[string]any{"from": noticesFile, "to": "."}},
		})
	}
	data, err := yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
		"kind":       "Plugin",
		"metadata":   map[string]any{"name": commandLine.name},
		"spec": map[string]any{
			"version":          "v" + chart.SemVer(r.version),
			"homepage":         source,
			"shortDescription": "Run and watch batch and training jobs",
			"description": "Submits batch and training jobs of TensorStack Batch, shows what each replica does and why a job waits,\n" +
				"prints logs, and pauses, resumes, scales and debugs jobs.\n",
			"platforms": platforms,
		},
	})
	if err != nil {
		return err
	}
	return r.write(krewFile, data)
}
