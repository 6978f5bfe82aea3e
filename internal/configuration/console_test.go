package configuration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const consoleHeader = "apiVersion: config.tensorstack.dev/v1alpha1\nkind: ConsoleConfiguration\n"

func TestErrorsOfTheConsoleNameTheFieldAndTheRemedy(t *testing.T) {
	const urls = "server: {urls: [https://console.example.org]}\n"
	const signIn = "signIn: {issuer: 'https://login.example.org', clientID: t9k, clientSecretFile: /secret"
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"other kind":       {operatorHeader, []string{`kind: Unsupported value: "OperatorConfiguration"`, `"ConsoleConfiguration"`}},
		"unknown fields":   {consoleHeader + "url: a\narchive: {path: b}\n", []string{`unknown field "url"`, `unknown field "archive.path"`, "docs/reference/consoleconfiguration.md"}},
		"repeated field":   {consoleHeader + "clusterName: a\nclusterName: b\n", []string{`"clusterName" already set`}},
		"addresses":        {consoleHeader + "server: {bindAddress: '8080'}\nhealth: {bindAddress: ':99999'}\nmetrics: {bindAddress: here}\n", []string{"server.bindAddress: Invalid value", "health.bindAddress: Invalid value", "metrics.bindAddress: Invalid value"}},
		"server off":       {consoleHeader + "server: {bindAddress: '0'}\n", []string{`server.bindAddress: Invalid value: "0": must be HOST:PORT or :PORT`}},
		"urls":             {consoleHeader + "server: {urls: ['https://a.example.org/', 'console.example.org', 'https://a.example.org/console', 'ftp://a.example.org', 'https://a.example.org?x=1', 'https://a.example.org/#x', 'https://user@a.example.org', 'HTTP://A.example.org:8080', 'http://[::1]:80']}\n", []string{`server.urls[1]: Invalid value: "console.example.org": must be an address such as https://console.example.org`, "server.urls[2]", "server.urls[3]", "server.urls[4]", "server.urls[5]", "server.urls[6]"}},
		"cache time":       {consoleHeader + "accessCacheTime: 0s\n", []string{`accessCacheTime: Invalid value: "0s": must be more than 0s`}},
		"sizes":            {consoleHeader + "archive: {maxJobLogSize: 0, maxLogSize: -1Gi}\n", []string{`archive.maxJobLogSize: Invalid value: "0": must be more than 0`, `archive.maxLogSize: Invalid value: "-1Gi"`}},
		"no size":          {consoleHeader + "archive: {maxLogSize: much}\n", []string{"quantities must match"}},
		"empty sign-in":    {consoleHeader + urls + "signIn: {}\n", []string{"signIn.issuer: Invalid value", "signIn.clientID: Required value", "signIn.clientSecretFile: Required value"}},
		"no urls":          {consoleHeader + signIn + "}\n", []string{"server.urls: Required value", "or remove signIn"}},
		"issuer: scheme":   {consoleHeader + urls + strings.Replace(signIn, "https", "http", 1) + "}\n", []string{`signIn.issuer: Invalid value: "http://login.example.org"`}},
		"issuer: query":    {consoleHeader + urls + strings.Replace(signIn, ".org", ".org?realm=a", 1) + "}\n", []string{"signIn.issuer: Invalid value"}},
		"issuer: fragment": {consoleHeader + urls + strings.Replace(signIn, ".org", ".org#a", 1) + "}\n", []string{"signIn.issuer: Invalid value"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Console([]byte(test.text))
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error lacks %q: %v", part, err)
				}
			}
		})
	}
	c, err := Console([]byte(consoleHeader + urls + signIn + ", extraScopes: [groups]}\narchive: {maxLogSize: 500M}\n"))
	if err != nil || c.SignIn.ExtraScopes[0] != "groups" || c.Archive.MaxLogSize.Value() != 500_000_000 || c.Archive.MaxJobLogSize.Value() != 4<<20 || c.AccessCacheTime.Duration != 10*time.Second {
		t.Errorf("the settings are %+v, error %v", c, err)
	}
}

// TestRenderedFilesAreValid verifies that the console's configuration files in config/console and in the golden files
// of the chart are valid.
func TestRenderedFilesAreValid(t *testing.T) {
	golden, err := filepath.Glob("../../tools/packaging/chart/testdata/*.golden.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, path := range append(golden, "../../config/console/config_map.yaml") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			installed := &corev1.ConfigMap{}
			if err := yaml.Unmarshal([]byte(document), installed); err != nil || installed.Kind != "ConfigMap" || installed.Name != "t9k-console" {
				continue
			}
			found++
			if _, err := Console([]byte(installed.Data["config.yaml"])); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	if found < 4 {
		t.Errorf("only %d files", found)
	}
}
