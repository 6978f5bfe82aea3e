package config

import (
	"io/fs"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// TestRulesOfWholeObjectsNameAField: the API server writes "<nil>" where a rule of a whole object names none.
func TestRulesOfWholeObjectsNameAField(t *testing.T) {
	names, err := fs.Glob(CRDs, "crd/*.yaml")
	if err != nil || len(names) < 6 {
		t.Fatalf("%d CRDs: %v", len(names), err)
	}
	for _, name := range names {
		data, err := fs.ReadFile(CRDs, name)
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensions.CustomResourceDefinition{}
		if err := yaml.Unmarshal(data, crd); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, v := range crd.Spec.Versions {
			for _, rule := range v.Schema.OpenAPIV3Schema.XValidations {
				if rule.FieldPath == "" {
					t.Errorf("%s: rule %q names no field", name, rule.Message)
				}
			}
		}
	}
}
