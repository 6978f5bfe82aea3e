package submit

import (
	"fmt"
	"strings"
	"testing"
)

// TestManifestErrorsAreLimited verifies that the number of errors per object is limited for manifests that consist of
// errors.
func TestManifestErrorsAreLimited(t *testing.T) {
	const head = "apiVersion: batch.tensorstack.dev/v1beta1\nkind: GenericJob\n"
	fill := func(begin, format string) string {
		var b strings.Builder
		b.WriteString(begin)
		for i := 0; b.Len() < MostText/8; i++ {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"unknown fields": fill(head+"metadata: {name: x}\nspec:\n", "  a%d: 1\n"),
		"labels":         fill(head+"metadata:\n  name: x\n  labels:\n", "    a%d: 1\n"),
		"roles":          fill(head+"metadata: {name: x}\nspec:\n  replicaSpecs:\n", "  - {type: %d}\n"),
		"rules":          fill(head+"metadata: {name: x}\nspec:\n  successRules:\n", "  - {replicas: [%d]}\n"),
		"data":           fill("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata:\n", "  a%d: 1\n"),
	} {
		t.Run(name, func(t *testing.T) {
			d, err := NewChecker().Check(t.Context(), text, "ns")
			if err != nil || len(d.Errors) == 0 || len(d.Errors) > maxErrors {
				t.Fatalf("%d errors, %v", len(d.Errors), err)
			}
		})
	}
}
