package chart

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestSchemaKnowsAllValues verifies that the schema and values.yaml have the same keys, except the global values and
// the keys of certificates.issuerRef, which have no defaults.
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

// keysOf adds the keys of values to found. It descends into an object only if the schema describes the object's keys.
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
		"operator: {config: {leaderElection: {enabled: false}}}":                  "leaderElection",
		"operator: {config: {health: {bindAddress: ':9000'}}}":                    "health",
		"metrics: {enabled: false, prometheusRule: {enabled: true}}":              "metrics.prometheusRule.enabled: alerts need metrics",
		"metrics: {enabled: false, serviceMonitor: {enabled: true}}":              "metrics.serviceMonitor.enabled: ServiceMonitors need metrics",
		"{console: {enabled: true}, metrics: {port: 8080}}":                       "metrics.port: the console serves its pages at 8080",
		"metrics: {port: 8081}":                                                   "metrics.port: the operator serves its probes at 8081",
		"metrics: {port: 9443}":                                                   "metrics.port: the operator serves its webhooks at 9443",
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

// TestPortsOfOthersAreFreeWithoutThem verifies that a port is refused only if a program of the release uses it.
func TestPortsOfOthersAreFreeWithoutThem(t *testing.T) {
	c := load(t)
	for _, text := range []string{"metrics: {port: 8080}", "metrics: {enabled: false, port: 9443}"} {
		values, err := common.ReadValues([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Render(c, values); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestValuesDecide verifies how values change single objects. A golden file for each case would repeat all other
// objects.
func TestValuesDecide(t *testing.T) {
	const archive = "console: {enabled: true, archive: {enabled: true, logs: true, "
	const together = archive + "}}\ncertificates: {source: cert-manager}\nnetworkPolicy: {enabled: true}\n"
	for _, test := range []struct {
		values, object string
		has, lacks     []string // parts of the object
		gone           bool     // whether the object must not exist
	}{
		{values: "metrics: {enabled: false}", object: "ConfigMap t9k-operator", has: []string{`bindAddress: "0"`}},
		{values: "metrics: {enabled: false}", object: "Deployment t9k-operator", lacks: []string{"metrics", "8443"}},
		{values: "{metrics: {enabled: false}, networkPolicy: {enabled: true}}", object: "NetworkPolicy t9k-operator", lacks: []string{"metrics"}},
		{values: "{metrics: {enabled: false}, console: {enabled: true}}", object: "ConfigMap t9k-console", has: []string{`bindAddress: "0"`}},
		{values: "{metrics: {enabled: false}, console: {enabled: true}}", object: "Deployment t9k-console", lacks: []string{"metrics", "8443"}},
		{values: "metrics: {enabled: false, service: true}", object: "Service t9k-operator-metrics", gone: true},
		{values: "metrics: {service: true, port: 8444}", object: "Service t9k-operator-metrics", has: []string{"port: 8444", "targetPort: metrics"}},
		{values: "metrics: {service: true}", object: "Service t9k-scheduler-metrics", has: []string{"port: 10259", "targetPort: probes"}},
		{values: "metrics: {service: true}", object: "Service t9k-console-metrics", gone: true},
		{values: "metrics: {service: true}", object: "ServiceMonitor t9k-operator", gone: true},
		{values: "crds: {install: false}", object: "CustomResourceDefinition queues.scheduler.tensorstack.dev", gone: true},
		{values: "crds: {install: false, keep: true}", object: "Deployment t9k-operator", has: []string{"replicas: 2"}},
		{values: "crds: {keep: false}", object: "CustomResourceDefinition queues.scheduler.tensorstack.dev", lacks: []string{"resource-policy"}},
		{values: archive + "}}", object: "PersistentVolumeClaim t9k-console-archive", has: []string{"helm.sh/resource-policy: keep"}},
		{values: archive + "volume: {keep: false}}}", object: "PersistentVolumeClaim t9k-console-archive", lacks: []string{"resource-policy"}},
		{values: archive + "volume: {claim: mine}}}", object: "PersistentVolumeClaim t9k-console-archive", gone: true},
		{values: archive + "volume: {claim: mine}}}", object: "Deployment t9k-console", has: []string{"claimName: mine"}, lacks: []string{"t9k-console-archive"}},
		{values: archive + "database: {secret: db, key: address}}}", object: "Deployment t9k-console",
			has: []string{"key: address\n", "name: db\n"}, lacks: []string{"persistentVolumeClaim", "maxSurge"}},
		{values: archive + "database: {secret: db}}}", object: "PersistentVolumeClaim t9k-console-archive", gone: true},
		{values: together, object: "Deployment t9k-operator", has: []string{"secretName: t9k-webhook-tls", "mountPath: /etc/t9k/webhook-cert"}},
		{values: together, object: "ConfigMap t9k-operator", has: []string{"certDir: /etc/t9k/webhook-cert", "logReadTime: 2s"}},
		{values: together, object: "Deployment t9k-console", has: []string{"claimName: t9k-console-archive", "fsGroup: 65532"}, lacks: []string{"t9k-webhook"}},
		{values: together, object: "NetworkPolicy t9k-console", has: []string{"port: console", "port: metrics"}},
		{values: together, object: "ClusterRole t9k-console-archive", has: []string{"pods/log"}},
		{values: together, object: "Secret t9k-webhook-cert", gone: true},
	} {
		got, exists := renderedTexts(t, test.values)[test.object]
		if exists == test.gone {
			t.Errorf("%s: %s exists: %t", test.values, test.object, exists)
		}
		for _, part := range test.has {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %s lacks %q", test.values, test.object, part)
			}
		}
		for _, part := range test.lacks {
			if strings.Contains(got, part) {
				t.Errorf("%s: %s has %q", test.values, test.object, part)
			}
		}
	}
}

// renderedTexts returns the objects that the chart renders with values, as YAML, by kind and name.
func renderedTexts(t *testing.T, values string) map[string]string {
	t.Helper()
	read, err := common.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	if read["crds"] == nil { // CRDs take most of the time
		read["crds"] = map[string]any{"install": false}
	}
	objects, err := Render(load(t), read)
	if err != nil {
		t.Fatalf("%s: %v", values, err)
	}
	texts := map[string]string{}
	for _, o := range objects {
		data, err := Manifest([]*unstructured.Unstructured{o})
		if err != nil {
			t.Fatal(err)
		}
		texts[o.GetKind()+" "+o.GetName()] = string(data)
	}
	return texts
}
