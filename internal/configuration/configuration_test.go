package configuration

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	configv1alpha1 "tensorstack.dev/batch/api/config/v1alpha1"
)

const operatorHeader = "apiVersion: config.tensorstack.dev/v1alpha1\nkind: OperatorConfiguration\n"

func TestErrorsNameTheFieldAndTheRemedy(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"no version":       {"kind: OperatorConfiguration\n", []string{`apiVersion: Unsupported value: ""`, `"config.tensorstack.dev/v1alpha1"`}},
		"other version":    {"apiVersion: config.tensorstack.dev/v9\nkind: OperatorConfiguration\n", []string{`apiVersion: Unsupported value: "config.tensorstack.dev/v9"`}},
		"other kind":       {"apiVersion: config.tensorstack.dev/v1alpha1\nkind: T9kGangArgs\n", []string{`kind: Unsupported value: "T9kGangArgs"`, `"OperatorConfiguration"`}},
		"unknown fields":   {operatorHeader + "job: {}\njobs: {maxReplica: 3}\n", []string{`unknown field "job"`, `unknown field "jobs.maxReplica"`, "docs/reference/operatorconfiguration.md"}},
		"wrong case":       {operatorHeader + "jobs: {maxreplicas: 3}\n", []string{`unknown field "jobs.maxreplicas"`}},
		"repeated field":   {operatorHeader + "jobs:\n  maxReplicas: 3\n  maxReplicas: 4\n", []string{`"maxReplicas" already set`, "line 5"}},
		"repeated in JSON": {`{"apiVersion": "config.tensorstack.dev/v1alpha1", "kind": "OperatorConfiguration", "jobs": {"maxReplicas": 3, "maxReplicas": 4}}`, []string{`"maxReplicas" already set`}},
		"type":             {operatorHeader + "jobs: {maxReplicas: many}\n", []string{"jobs.maxReplicas"}},
		"addresses":        {operatorHeader + "health: {bindAddress: '8081'}\nmetrics: {bindAddress: ':99999'}\n", []string{"health.bindAddress: Invalid value", "metrics.bindAddress: Invalid value", "must be HOST:PORT"}},
		"certificate":      {operatorHeader + "webhook: {bindAddress: '0', certDir: /certs}\n", []string{"webhook.certDir: Invalid value", "remove it, or set webhook.bindAddress"}},
		"numbers":          {operatorHeader + "jobs: {maxReplicas: 0, maxListedReplicas: -1, clusterDomain: A_B}\ntensorBoards: {user: -1}\n", []string{"jobs.maxReplicas: Invalid value: 0: must be at least 1", "jobs.maxListedReplicas: Invalid value: -1", "jobs.clusterDomain", "tensorBoards.user: Invalid value: -1: must be at least 0"}},
		"durations":        {operatorHeader + "jobs: {forceDeleteAfter: 0s, restartBackoff: 1h}\ntensorBoards: {idleAfter: -1s}\n", []string{"jobs.forceDeleteAfter: Invalid value: \"0s\": must be more than 0s", "jobs.maxRestartBackoff: Invalid value: \"5m0s\": must be at least jobs.restartBackoff, 1h0m0s", "tensorBoards.idleAfter"}},
		"no endpoint":      {operatorHeader + "tracing: {}\n", []string{"tracing.endpoint: Required value", "HOST:PORT"}},
		"endpoint: URL":    {operatorHeader + "tracing: {endpoint: 'http://collector:4317'}\n", []string{`tracing.endpoint: Invalid value: "http://collector:4317"`, "without a scheme"}},
		"endpoint: port":   {operatorHeader + "tracing: {endpoint: 'collector:0'}\n", []string{"tracing.endpoint: Invalid value"}},
		"endpoint: host":   {operatorHeader + "tracing: {endpoint: ':4317'}\n", []string{"tracing.endpoint: Invalid value"}},
		"sampling rate":    {operatorHeader + "tracing: {endpoint: 'collector:4317', samplingRatePerMillion: 1000001}\n", []string{"tracing.samplingRatePerMillion: Invalid value: 1000001: must be from 0 to 1000000"}},
		"negative rate":    {operatorHeader + "tracing: {endpoint: '[::1]:4317', samplingRatePerMillion: -1}\n", []string{"tracing.samplingRatePerMillion: Invalid value: -1"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Operator([]byte(test.text))
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
}

func TestFileReplacesDefaults(t *testing.T) {
	c, err := Operator([]byte(operatorHeader + "jobs: {maxReplicas: 9}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if *c.Jobs.MaxReplicas != 9 || c.Jobs.RestartBackoff.Duration != 10*time.Second {
		t.Errorf("the settings are %+v", c.Jobs)
	}
}

func TestTracingIsOffUnlessSet(t *testing.T) {
	for text, want := range map[string]*configv1alpha1.Tracing{
		"": nil,
		operatorHeader + "tracing: {endpoint: 'collector.monitoring:4317'}\n":                 {Endpoint: "collector.monitoring:4317", SamplingRatePerMillion: new(int32(1000000))},
		operatorHeader + "tracing: {endpoint: '[::1]:4317', samplingRatePerMillion: 0}\n":     {Endpoint: "[::1]:4317", SamplingRatePerMillion: new(int32)},
		operatorHeader + "tracing: {endpoint: '10.0.0.1:4317', samplingRatePerMillion: 10}\n": {Endpoint: "10.0.0.1:4317", SamplingRatePerMillion: new(int32(10))},
	} {
		c, err := Operator([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(c.Tracing, want) {
			t.Errorf("%q: tracing is %+v, want %+v", text, c.Tracing, want)
		}
	}
}

func TestGangArgsErrorsNameThePathInTheFile(t *testing.T) {
	path := field.NewPath("profiles").Key("t9k-scheduler").Child("pluginConfig").Key("T9kGang").Child("args")
	const header = "apiVersion: config.tensorstack.dev/v1alpha1\nkind: T9kGangArgs\n"
	for text, want := range map[string]string{
		"kind: T9kGangArgs\n":                     `profiles[t9k-scheduler].pluginConfig[T9kGang].args.apiVersion: Unsupported value`,
		header + "reserve: 1s\n":                  `unknown field "profiles[t9k-scheduler].pluginConfig[T9kGang].args.reserve"`,
		header + "reserveAfter: -1s\n":            `profiles[t9k-scheduler].pluginConfig[T9kGang].args.reserveAfter: Invalid value: "-1s": must not be negative`,
		header + "gangGracePeriod: 0s\n":          `args.gangGracePeriod: Invalid value: "0s": must be more than 0s`,
		header + "topologyLabel: a/b/c\n":         `args.topologyLabel: Invalid value: "a/b/c"`,
		header + "tracing: {endpoint: nowhere}\n": `profiles[t9k-scheduler].pluginConfig[T9kGang].args.tracing.endpoint: Invalid value: "nowhere"`,
	} {
		if _, err := GangArgs([]byte(text), path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: the error lacks %q: %v", text, want, err)
		}
	}
	if a, err := GangArgs([]byte(header+"reserveAfter: 0s\n"), path); err != nil || a.ReserveAfter.Duration != 0 || a.GangGracePeriod.Duration != 5*time.Minute {
		t.Errorf("arguments %+v, error %v", a, err)
	}
}

// TestDefaultsAreThoseOfTheMarkers verifies that, for each marker +default of the types, a field of that name gets the
// default in the marker. The reference is generated from the markers.
func TestDefaultsAreThoseOfTheMarkers(t *testing.T) {
	marked := regexp.MustCompile(`(?s)\+default=("?)([^\n"]*)"?\n(?:\t// \+[^\n]*\n)*\t\w+ +\S+ +` + "`" + `json:"(\w+)`)
	operator, gang, console := &configv1alpha1.OperatorConfiguration{}, &configv1alpha1.T9kGangArgs{}, &configv1alpha1.ConsoleConfiguration{}
	setOperatorDefaults(operator)
	setGangDefaults(gang)
	setConsoleDefaults(console)
	tracing := &configv1alpha1.Tracing{}
	setTracingDefaults(tracing)
	for file, c := range map[string]any{"operator_types.go": operator, "scheduler_types.go": gang, "console_types.go": console, "tracing_types.go": tracing} {
		source, err := os.ReadFile("../../api/config/v1alpha1/" + file)
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		all := marked.FindAllStringSubmatch(string(source), -1)
		if len(all) < 1 || len(all) != strings.Count(string(source), "+default=") {
			t.Errorf("%s: found %d of %d markers", file, len(all), strings.Count(string(source), "+default="))
		}
		for _, m := range all {
			if want := fmt.Sprintf(`"%s":%s%s%s`, m[3], m[1], m[2], m[1]); !strings.Contains(string(data), want) {
				t.Errorf("%s: a default is not %s, but\n%s", file, want, data)
			}
		}
	}
}

// TestInstalledFileIsValid verifies that the operator's configuration file in config/operator is valid.
func TestInstalledFileIsValid(t *testing.T) {
	data, err := os.ReadFile("../../config/operator/config_map.yaml")
	if err != nil {
		t.Fatal(err)
	}
	installed := &corev1.ConfigMap{}
	if err := yaml.UnmarshalStrict(data, installed); err != nil {
		t.Fatal(err)
	}
	c, err := Operator([]byte(installed.Data["config.yaml"]))
	if err != nil || c.Metrics.BindAddress != ":8443" || !*c.LeaderElection.Enabled {
		t.Errorf("the settings are %+v, error %v", c, err)
	}
}
