package chart

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	v2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const root = "../../.."

var update = flag.Bool("update", false, "write the golden files")

func load(t *testing.T) *v2.Chart {
	t.Helper()
	c, err := loader.LoadDir(filepath.Join(root, Dir))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// valueFiles returns the values in testdata by file name. Only the default values render CRDs, which take most of the
// time.
func valueFiles(t *testing.T) map[string]map[string]any {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.values.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no values: %v", err)
	}
	all := map[string]map[string]any{}
	for _, path := range paths {
		values, err := common.ReadValuesFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".values.yaml")
		if name != "default" {
			values["crds"] = map[string]any{"install": false}
		}
		all[name] = values
	}
	return all
}

// TestRenderedChartMatchesGoldenFiles verifies that each file of values renders the objects in its golden file;
// test/integration applies these files to an API server. The golden files leave out the common part, which
// TestDefaultsRenderTheSameAsConfig checks.
func TestRenderedChartMatchesGoldenFiles(t *testing.T) {
	c := load(t)
	for name, values := range valueFiles(t) {
		t.Run(name, func(t *testing.T) {
			objects, err := Render(c, values)
			if err != nil {
				t.Fatal(err)
			}
			objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
				return o.GetKind() == "CustomResourceDefinition" || strings.Contains(o.GetKind(), "AdmissionPolicy") ||
					name != "default" && strings.Contains(o.GetKind(), "Role") && !strings.HasPrefix(o.GetName(), "t9k-operator-webhook") &&
						(o.GetName() != "t9k-metrics-reader" || o.GetKind() != "ClusterRoleBinding")
			})
			got, err := Manifest(objects)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name+".golden.yaml")
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("run with -update if this is right (-want +got)\n%s", diff)
			}
		})
	}
}

func TestChartPassesLint(t *testing.T) {
	for name, values := range valueFiles(t) {
		result := lint.RunAll(filepath.Join(root, Dir), values, Namespace)
		for _, m := range result.Messages {
			if m.Severity >= support.WarningSev {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

// TestDefaultsRenderTheSameAsConfig compares the objects that the chart renders by default with those that
// `kubectl apply -k config/default` applies, and likewise for the folders of older versions of Kubernetes.
func TestDefaultsRenderTheSameAsConfig(t *testing.T) {
	for version, dir := range map[string]string{newest.Version: "default", "v1.35.0": "before-1.36", "v1.34.0": "before-1.36", "v1.33.0": "before-1.34"} {
		t.Run(version, func(t *testing.T) {
			fromChart, err := RenderFor(load(t), version)
			if err != nil {
				t.Fatal(err)
			}
			checkSame(t, fromChart, configDir(dir))
		})
	}
}

// TestConsoleRendersTheSameAsConfig compares the objects that console.enabled adds with config/console.
func TestConsoleRendersTheSameAsConfig(t *testing.T) {
	added, err := Render(load(t), map[string]any{"console": map[string]any{"enabled": true}})
	if err != nil {
		t.Fatal(err)
	}
	checkSame(t, slices.DeleteFunc(added, func(o *unstructured.Unstructured) bool { return o.GetName() != "t9k-console" }), configDir("console"))
}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// TestArchiveOverlayOfTheGuide compares the overlay of history.md, which adds an archive to config/console, with what
// the chart renders for the same archive.
func TestArchiveOverlayOfTheGuide(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join(root, "docs", "history.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := yamlBlock.FindAllSubmatch(guide, -1)
	if len(blocks) != 1 {
		t.Fatalf("history.md has %d blocks of YAML", len(blocks))
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "config"), os.DirFS(filepath.Join(root, "config"))); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), blocks[0][1], 0o600); err != nil {
		t.Fatal(err)
	}
	values, err := common.ReadValues([]byte("console: {enabled: true, archive: {enabled: true, logs: true, database: {secret: t9k-archive}}}"))
	if err != nil {
		t.Fatal(err)
	}
	added, err := Render(load(t), values)
	if err != nil {
		t.Fatal(err)
	}
	checkSame(t, slices.DeleteFunc(added, func(o *unstructured.Unstructured) bool { return !strings.HasPrefix(o.GetName(), "t9k-console") }), dir)
}

// TestConsoleReadsLogsOnlyIfAsked verifies that the right to read the logs of all pods is granted only if the values
// ask for it, and only for an archive.
func TestConsoleReadsLogsOnlyIfAsked(t *testing.T) {
	for text, want := range map[string]int{
		"console: {enabled: true}":                                       0,
		"console: {enabled: true, archive: {logs: true}}":                0,
		"console: {enabled: true, archive: {enabled: true}}":             0,
		"console: {archive: {enabled: true, logs: true}}":                0,
		"console: {enabled: true, archive: {enabled: true, logs: true}}": 2,
	} {
		values, err := common.ReadValues([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		objects, err := renderIn(load(t), values, "elsewhere", newest)
		if err != nil {
			t.Fatal(err)
		}
		granted := slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
			return o.GetName() != "t9k-console-archive" || !strings.HasPrefix(o.GetKind(), "ClusterRole")
		})
		if len(granted) != want {
			t.Errorf("%s: %d objects grant the right, want %d", text, len(granted), want)
		}
	}
}

// configDir returns the path of a folder of config.
func configDir(name string) string { return filepath.Join(root, "config", name) }

// checkSame compares objects of the chart with the objects that kustomize makes from a folder. It also verifies that
// exactly the CRDs have the annotations that keep an object, and that all objects of the chart have its label.
func checkSame(t *testing.T, fromChart []*unstructured.Unstructured, dir string) {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	config := map[string]map[string]any{}
	for _, r := range resources.Resources() {
		data, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(data, &o.Object); err != nil {
			t.Fatal(err)
		}
		if o.GetKind() == "Namespace" { // not in the chart: helm install --create-namespace creates it
			continue
		}
		if isCRD := o.GetKind() == "CustomResourceDefinition"; isCRD != isKept(o) {
			t.Errorf("%s of %s: annotations %v", key(o), dir, o.GetAnnotations())
		}
		config[key(o)] = bare(o)
	}
	chart := map[string]map[string]any{}
	for _, o := range fromChart {
		if isCRD := o.GetKind() == "CustomResourceDefinition"; isCRD != (o.GetAnnotations()["helm.sh/resource-policy"] == "keep") {
			t.Errorf("%s: annotations %v", key(o), o.GetAnnotations())
		}
		if o.GetLabels()["app.kubernetes.io/name"] != "t9k-batch" {
			t.Errorf("%s has labels %v", key(o), o.GetLabels())
		}
		chart[key(o)] = bare(o)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(config)), slices.Sorted(maps.Keys(chart))); diff != "" {
		t.Fatalf("objects (-config +chart)\n%s", diff)
	}
	for name := range config {
		if diff := cmp.Diff(config[name], chart[name]); diff != "" {
			t.Errorf("%s (-config +chart)\n%s", name, diff)
		}
	}
}

// keeping holds the annotations by which GitOps tools keep an object of config when they delete the installation.
var keeping = map[string]string{"argocd.argoproj.io/sync-options": "Prune=false,Delete=false", "kustomize.toolkit.fluxcd.io/prune": "disabled"}

func isKept(o *unstructured.Unstructured) bool {
	for name, value := range keeping {
		if o.GetAnnotations()[name] != value {
			return false
		}
	}
	return true
}

func key(o *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
}

// bare returns an object without the labels and annotations of the chart and of kustomize.
func bare(o *unstructured.Unstructured) map[string]any {
	removeChartLabels(o)
	annotations := o.GetAnnotations()
	delete(annotations, "helm.sh/resource-policy")
	for name := range keeping {
		delete(annotations, name)
	}
	o.SetAnnotations(annotations)
	return o.Object
}

// TestGeneratedFilesAreCurrent verifies that Generate would not change the chart or config, and that it removes a copy
// whose original does not exist.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	copied := t.TempDir()
	for _, dir := range []string{Dir, "config"} {
		if err := os.CopyFS(filepath.Join(copied, dir), os.DirFS(filepath.Join(root, dir))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(copied, Dir, "files", "crd", "gone.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Generate(copied); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tree(t, root), tree(t, copied)); diff != "" {
		t.Errorf("`make generate` changes files (-now +generated)\n%s", diff)
	}
}

// tree returns the contents of the files of the chart and of config by path.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, dir := range []string{Dir, "config"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			files[strings.TrimPrefix(path, root)] = string(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// TestNothingForASyncToRevert verifies that the chart sets no field that the operator or cert-manager fills in, because
// a GitOps tool would then revert their changes.
func TestNothingForASyncToRevert(t *testing.T) {
	c := load(t)
	for name, values := range valueFiles(t) {
		objects, err := Render(c, values)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			_, data := o.Object["data"]
			_, stringData := o.Object["stringData"]
			if o.GetKind() == "Secret" && (data || stringData) {
				t.Errorf("%s: %s has data", name, key(o))
			}
			hooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
			for _, hook := range hooks {
				if _, found, _ := unstructured.NestedFieldNoCopy(hook.(map[string]any), "clientConfig", "caBundle"); found {
					t.Errorf("%s: %s has a caBundle", name, key(o))
				}
			}
		}
	}
}

// TestObjectsFollowTheReleaseNamespace verifies that all objects use the namespace of the release.
func TestObjectsFollowTheReleaseNamespace(t *testing.T) {
	c := load(t)
	objects, err := renderIn(c, nil, "elsewhere", newest)
	if err != nil {
		t.Fatal(err)
	}
	data, err := Manifest(objects)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), Namespace) {
		t.Errorf("%s is still named", Namespace)
	}
}

// TestOlderKubernetesGetsNoMutatingPolicies verifies that a release for an API server before 1.36 has all objects
// except the mutating policies, which the API server would refuse.
func TestOlderKubernetesGetsNoMutatingPolicies(t *testing.T) {
	kinds := map[string]map[string]int{}
	for _, version := range []string{"v1.33.0", "v1.35.4-gke.1", newest.Version} {
		objects, err := RenderFor(load(t), version)
		if err != nil {
			t.Fatal(err)
		}
		kinds[version] = map[string]int{}
		for _, o := range objects {
			kinds[version][o.GetKind()]++
		}
	}
	want := maps.Clone(kinds[newest.Version])
	if want["MutatingAdmissionPolicy"] == 0 || want["MutatingAdmissionPolicyBinding"] == 0 {
		t.Fatalf("the newest version gets %v", want)
	}
	delete(want, "MutatingAdmissionPolicy")
	delete(want, "MutatingAdmissionPolicyBinding")
	for _, version := range []string{"v1.33.0", "v1.35.4-gke.1"} {
		if diff := cmp.Diff(want, kinds[version]); diff != "" {
			t.Errorf("kinds of objects for %s (-want +got)\n%s", version, diff)
		}
	}
}
