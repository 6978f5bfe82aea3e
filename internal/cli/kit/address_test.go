package kit

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/config"
	"tensorstack.dev/batch/internal/kinds"
)

// TestAddressTakesTheNamesOfTheDefinitions verifies that each kind has a short name, and that ParseAddress accepts the
// names in the kind's CRD and the plural with the API group.
func TestAddressTakesTheNamesOfTheDefinitions(t *testing.T) {
	for i := range kinds.All {
		kind := &kinds.All[i]
		data, err := config.CRDs.ReadFile("crd/" + batch.GroupVersion.Group + "_" + kind.Plural + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(data, &crd); err != nil {
			t.Fatal(err)
		}
		n := &crd.Spec.Names
		names := append([]string{n.Kind, n.Plural, n.Singular, n.Plural + "." + crd.Spec.Group, strings.ToUpper(n.Singular)}, n.ShortNames...)
		if len(n.ShortNames) == 0 {
			t.Errorf("%s has no short name", kind.Name)
		}
		for _, name := range names {
			got, job, err := ParseAddress(name + "/mnist")
			if err != nil || got != kind || job != "mnist" {
				t.Errorf("%s/mnist: %v, %q, %v", name, got, job, err)
			}
		}
	}
}
