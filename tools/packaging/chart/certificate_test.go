package chart

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestCertManagerHasASecretOfItsOwn verifies that the chart, with any of the values in testdata, contains no Secret
// with the name of the Secret that cert-manager writes and leaves behind, because Helm refuses to take over a Secret
// that it has not created. It also verifies that the operator mounts the Secret that cert-manager writes.
func TestCertManagerHasASecretOfItsOwn(t *testing.T) {
	c := load(t)
	ours, theirs := map[string]bool{}, map[string]bool{}
	for name, values := range valueFiles(t) {
		objects, err := Render(c, values)
		if err != nil {
			t.Fatal(err)
		}
		mounted, made := "", ""
		for _, o := range objects {
			switch o.GetKind() {
			case "Secret":
				ours[o.GetName()] = true
			case "Certificate":
				made, _, _ = unstructured.NestedString(o.Object, "spec", "secretName")
				theirs[made] = true
			case "Deployment":
				mounted += mountedSecret(o, "webhook-cert")
			}
		}
		if mounted != made {
			t.Errorf("%s: the operator mounts the Secret %q, and cert-manager writes %q", name, mounted, made)
		}
	}
	for name := range theirs {
		if ours[name] {
			t.Errorf("both the chart and cert-manager make the Secret %s", name)
		}
	}
	if len(ours) == 0 || len(theirs) == 0 {
		t.Errorf("Secrets of the chart %v, of cert-manager %v", ours, theirs)
	}
}

// mountedSecret returns the name of the Secret of a Deployment's volume; empty if there is no such volume.
func mountedSecret(deployment *unstructured.Unstructured, volume string) string {
	volumes, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "volumes")
	for _, v := range volumes {
		if v := v.(map[string]any); v["name"] == volume {
			name, _, _ := unstructured.NestedString(v, "secret", "secretName")
			return name
		}
	}
	return ""
}
