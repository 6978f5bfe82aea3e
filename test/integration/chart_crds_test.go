package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"tensorstack.dev/batch/internal/testing/require"
)

// crdsOfOthers returns, by kind, the CRDs of the other projects' kinds that the chart uses.
func crdsOfOthers(t *testing.T) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	monitoring := filepath.Join(moduleDir(t, "github.com/prometheus-operator/prometheus-operator"), "example", "prometheus-operator-crd")
	certManager := filepath.Join(moduleDir(t, "github.com/cert-manager/cert-manager"), "deploy", "crds")
	all := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, file := range []string{
		filepath.Join(monitoring, "monitoring.coreos.com_servicemonitors.yaml"), filepath.Join(monitoring, "monitoring.coreos.com_prometheusrules.yaml"),
		filepath.Join(certManager, "cert-manager.io_certificates.yaml"), filepath.Join(certManager, "cert-manager.io_issuers.yaml"),
	} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(data, crd); err != nil {
			t.Fatalf("reading %s: %v", file, err)
		}
		all[crd.Spec.Names.Kind] = crd
	}
	return all
}

// moduleDir returns the directory of a module that test/crds requires. If the module cannot be downloaded, it ends
// the test as require.Missing does.
func moduleDir(t *testing.T, module string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module)
	cmd.Dir = "../crds"
	out, err := cmd.Output()
	found := struct{ Dir, Error string }{}
	if jsonErr := json.Unmarshal(out, &found); jsonErr != nil || found.Error != "" {
		require.Missing(t, "the module "+module+", which has CRDs: "+found.Error)
	}
	if err != nil {
		t.Fatalf("finding the module %s: %v", module, err)
	}
	return found.Dir
}

// schemaOf returns the schema of a version of a CRD. It ends the test if the CRD does not serve this version, or if the
// version is deprecated.
func schemaOf(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition, version string) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	for i := range crd.Spec.Versions {
		if v := &crd.Spec.Versions[i]; v.Name == version && v.Served && !v.Deprecated {
			return v.Schema.OpenAPIV3Schema
		}
	}
	t.Fatalf("%s has no version %s that is not deprecated", crd.Name, version)
	return nil
}

// checkDeprecation verifies that a value sets no field whose description says that it is deprecated.
func checkDeprecation(t *testing.T, path string, schema *apiextensionsv1.JSONSchemaProps, value any) {
	t.Helper()
	if strings.Contains(schema.Description, "Deprecated:") {
		t.Errorf("%s is deprecated: %s", path, schema.Description)
	}
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			if s, ok := schema.Properties[name]; ok {
				checkDeprecation(t, path+"."+name, &s, field)
			}
		}
	case []any:
		for _, item := range v {
			if schema.Items != nil && schema.Items.Schema != nil {
				checkDeprecation(t, path+"[]", schema.Items.Schema, item)
			}
		}
	}
}
