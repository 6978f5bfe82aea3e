// Package chart generates, renders and packs the Helm chart. The chart and config share one source. Objects without
// settings (CRDs, roles, webhooks, admission policies) are edited in config and copied into the chart. Objects with
// settings (Deployments and related objects) are edited in the chart's templates and rendered into config with the
// default values. Start reading at Generate.
package chart

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	v2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Dir is the folder of the chart below the root of the source tree.
const Dir = "charts/t9k-batch"

// Namespace is the namespace of the objects in config, and the namespace in which the documentation installs the chart.
const Namespace = "t9k-system"

// newest is the newest supported version of Kubernetes; config/default is rendered for it.
var newest = common.KubeVersion{Version: "v1.36.0", Major: "1", Minor: "36"}

// copies lists patterns of the files of config that are copied into the chart.
var copies = []string{
	"crd/*.yaml", "rbac/role.yaml", "rbac/role_binding.yaml",
	"webhook/configuration.yaml", "webhook/defaults.yaml", "webhook/rbac.yaml", "webhook/certificate_rbac.yaml", "webhook/secret.yaml", "webhook/service.yaml",
	"scheduler/admission_*.yaml", "scheduler/role.yaml", "scheduler/role_bindings.yaml",
	"console/role.yaml", "console/role_binding.yaml", "console/archive_role.yaml",
	"users/[^k]*.yaml",
}

// rendered lists the names of the files of config that are rendered from the chart, by the kind of their object.
var rendered = map[string]string{
	"ConfigMap": "config_map.yaml", "Deployment": "deployment.yaml", "ServiceAccount": "service_account.yaml", "PodDisruptionBudget": "pod_disruption_budget.yaml",
}

// Generate writes the chart's copies of files of config, the files of config that are rendered from the chart, and the
// table of values in the chart's README.
func Generate(root string) error {
	if err := copyConfig(root); err != nil {
		return err
	}
	if err := renderConfig(root); err != nil {
		return err
	}
	return writeReadme(filepath.Join(root, Dir))
}

// copyConfig brings the chart's copies of files of config up to date, and removes copies whose originals no longer
// exist.
func copyConfig(root string) error {
	files := filepath.Join(root, Dir, "files")
	var fresh []string
	for _, pattern := range copies {
		matches, err := filepath.Glob(filepath.Join(root, "config", pattern))
		if err != nil || len(matches) == 0 {
			return fmt.Errorf("config has no files %s: %w", pattern, err)
		}
		for _, from := range matches {
			to := filepath.Join(files, filepath.Base(filepath.Dir(from)), filepath.Base(from))
			data, err := os.ReadFile(from)
			if err != nil {
				return err
			}
			if err := write(to, data); err != nil {
				return err
			}
			fresh = append(fresh, to)
		}
	}
	for _, dir := range []string{"crd", "rbac", "webhook", "scheduler", "console", "users"} {
		there, err := filepath.Glob(filepath.Join(files, dir, "*"))
		if err != nil {
			return err
		}
		for _, file := range there {
			if slices.Contains(fresh, file) {
				continue
			}
			if err := os.Remove(file); err != nil {
				return err
			}
		}
	}
	return nil
}

// renderConfig writes the files of config that are rendered from the chart.
func renderConfig(root string) error {
	chart, err := loader.LoadDir(filepath.Join(root, Dir))
	if err != nil {
		return fmt.Errorf("reading the chart: %w", err)
	}
	// This includes the console, which config has in a separate folder and not in config/default.
	objects, err := Render(chart, map[string]any{"console": map[string]any{"enabled": true}})
	if err != nil {
		return err
	}
	for _, o := range objects {
		file, ok := rendered[o.GetKind()]
		if o.GetKind() == "Service" && o.GetName() == "t9k-console" { // the other Service, of the webhook, is edited in config
			file, ok = "service.yaml", true
		}
		if !ok {
			continue
		}
		removeChartLabels(o)
		data, err := yaml.Marshal(o.Object)
		if err != nil {
			return err
		}
		data = append([]byte("# Written by `make generate` as charts/t9k-batch/templates renders it. DO NOT EDIT.\n"), data...)
		if err := write(filepath.Join(root, "config", strings.TrimPrefix(o.GetName(), "t9k-"), file), data); err != nil {
			return err
		}
	}
	return nil
}

// removeChartLabels removes the labels that name the chart, because kustomize adds its own labels.
func removeChartLabels(o *unstructured.Unstructured) {
	labels := o.GetLabels()
	for _, name := range []string{"name", "instance", "version", "managed-by"} {
		delete(labels, "app.kubernetes.io/"+name)
	}
	delete(labels, "helm.sh/chart")
	if len(labels) == 0 {
		labels = nil
	}
	o.SetLabels(labels)
}

// Render returns the objects that the chart yields with the given values in Namespace for the newest version of
// Kubernetes, in the order of the templates' names.
func Render(chart *v2.Chart, values map[string]any) ([]*unstructured.Unstructured, error) {
	return renderIn(chart, values, Namespace, newest)
}

// Editions maps each edition of the manifest to the newest version of Kubernetes that it is for. The key is the suffix
// of the manifest's file name: empty for config/default, otherwise a hyphen and the name of a folder of config.
var Editions = map[string]string{"": newest.Version, "-before-1.36": "v1.35.0", "-before-1.34": "v1.33.0"}

// RenderFor returns the objects that the chart yields with the default values for a version of Kubernetes.
func RenderFor(chart *v2.Chart, version string) ([]*unstructured.Unstructured, error) {
	kubernetes, err := common.ParseKubeVersion(version)
	if err != nil {
		return nil, fmt.Errorf("reading the version of Kubernetes: %w", err)
	}
	return renderIn(chart, nil, Namespace, *kubernetes)
}

func renderIn(chart *v2.Chart, values map[string]any, namespace string, kubernetes common.KubeVersion) ([]*unstructured.Unstructured, error) {
	options := common.ReleaseOptions{Name: "t9k-batch", Namespace: namespace, Revision: 1, IsInstall: true}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion = kubernetes
	all, err := util.ToRenderValues(chart, values, options, capabilities)
	if err != nil {
		return nil, fmt.Errorf("reading values: %w", err)
	}
	texts, err := engine.Render(chart, all)
	if err != nil {
		return nil, fmt.Errorf("rendering the chart: %w", err)
	}
	var names []string
	for name := range texts {
		if strings.HasSuffix(name, ".yaml") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var objects []*unstructured.Unstructured
	for _, name := range names {
		for _, text := range strings.Split("\n"+texts[name], "\n---") {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
				return nil, fmt.Errorf("reading what %s renders: %w", name, err)
			}
			if len(o.Object) > 0 {
				objects = append(objects, o)
			}
		}
	}
	return objects, nil
}

// Manifest returns objects as one YAML file.
func Manifest(objects []*unstructured.Unstructured) ([]byte, error) {
	var out bytes.Buffer
	for _, o := range objects {
		data, err := yaml.Marshal(o.Object)
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(data)
	}
	return out.Bytes(), nil
}

// write writes a file unless it already has this content.
func write(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}
