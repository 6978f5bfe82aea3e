package chart

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
)

// TestSchemaKnowsAllValues compares the schema with the values, both ways.
func TestSchemaKnowsAllValues(t *testing.T) {
	c := load(t)
	var schema map[string]any
	if err := json.Unmarshal(c.Schema, &schema); err != nil {
		t.Fatal(err)
	}
	inSchema := map[string]bool{}
	propertiesOf("", schema, inSchema)
	delete(inSchema, "global")
	for _, optional := range []string{"name", "kind", "group"} {
		delete(inSchema, "certificates.issuerRef."+optional)
	}
	inValues := map[string]bool{}
	keysOf("", c.Values, inSchema, inValues)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(inSchema)), slices.Sorted(maps.Keys(inValues))); diff != "" {
		t.Errorf("values (-schema +values.yaml)\n%s", diff)
	}
}

func propertiesOf(prefix string, schema map[string]any, found map[string]bool) {
	properties, _ := schema["properties"].(map[string]any)
	for name, inner := range properties {
		found[prefix+name] = true
		propertiesOf(prefix+name+".", inner.(map[string]any), found)
	}
}

// keysOf adds the keys of values to found, down to the keys that the schema does not describe.
func keysOf(prefix string, values map[string]any, schema, found map[string]bool) {
	for name, value := range values {
		found[prefix+name] = true
		inner, ok := value.(map[string]any)
		deeper := slices.ContainsFunc(slices.Collect(maps.Keys(schema)), func(k string) bool { return strings.HasPrefix(k, prefix+name+".") })
		if ok && deeper {
			keysOf(prefix+name+".", inner, schema, found)
		}
	}
}

func TestWrongValuesAreRefused(t *testing.T) {
	c := load(t)
	for text, want := range map[string]string{
		"operator: {replica: 3}":                                                  "replica",
		"console: {urls: [console.example.org]}":                                  "urls",
		"operator: {replicas: -1}":                                                "replicas",
		"console: {archive: {enabled: true, volume: {size: large}}}":              "size",
		"console: {enabled: true, replicas: 2, archive: {enabled: true}}":         "one console writes the file",
		"console: {archive: {database: {secret: t9k-archive, password: secret}}}": "password",
		"certificates: {source: vault}":                                           "source",
		"image: {pullSecrets: [registry]}":                                        "pullSecrets",
		"queues: [{spec: {}}]":                                                    "name",
		"operator: {image: {digest: latest}}":                                     "digest",
		"priorityClasses: [{name: high}]":                                         "value",
		"metrics: {serviceMonitor: {interval: 30}}":                               "interval",
		"tracing: {endpoint: 'http://collector:4317'}":                            "endpoint",
		"tracing: {samplingRatePerMillion: 2000000}":                              "samplingRatePerMillion",
	} {
		values, err := common.ReadValues([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Render(c, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}
