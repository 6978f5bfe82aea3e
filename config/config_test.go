package config

import (
	"fmt"
	"io/fs"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
)

// crds returns all CRDs by the names of their files.
func crds(t *testing.T) map[string]*apiextensions.CustomResourceDefinition {
	t.Helper()
	names, err := fs.Glob(CRDs, "crd/*.yaml")
	if err != nil || len(names) < 6 {
		t.Fatalf("%d CRDs: %v", len(names), err)
	}
	all := map[string]*apiextensions.CustomResourceDefinition{}
	for _, name := range names {
		data, err := fs.ReadFile(CRDs, name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = &apiextensions.CustomResourceDefinition{}
		if err := yaml.Unmarshal(data, all[name]); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return all
}

// TestRulesOfWholeObjectsNameAField verifies that the rules of whole objects have a fieldPath. Without it, the API
// server reports "<nil>" as the field.
func TestRulesOfWholeObjectsNameAField(t *testing.T) {
	for name, crd := range crds(t) {
		for _, v := range crd.Spec.Versions {
			for _, rule := range v.Schema.OpenAPIV3Schema.XValidations {
				if rule.FieldPath == "" {
					t.Errorf("%s: rule %q names no field", name, rule.Message)
				}
			}
		}
	}
}

// TestElasticKindsHaveAScale verifies that exactly the kinds whose jobs can be elastic have a scale subresource.
func TestElasticKindsHaveAScale(t *testing.T) {
	all := crds(t)
	for _, k := range kinds.All {
		crd := all[fmt.Sprintf("crd/%s_%s.yaml", batch.GroupVersion.Group, k.Plural)]
		if crd == nil {
			t.Errorf("%s has no CRD", k.Name)
			continue
		}
		for _, v := range crd.Spec.Versions {
			if scales := v.Subresources != nil && v.Subresources.Scale != nil; scales != k.Elastic {
				t.Errorf("%s: the CRD has a scale subresource: %t, jobs can be elastic: %t", k.Name, scales, k.Elastic)
			}
		}
	}
}
