package schedulercmd

import (
	"testing"

	apiversion "k8s.io/apimachinery/pkg/version"
)

// TestEmulatedVersionTakesPrecedence verifies that the version that an API server emulates takes precedence
// over the server's own, and that the sign that some providers add to the minor version is ignored.
func TestEmulatedVersionTakesPrecedence(t *testing.T) {
	for name, c := range map[string]struct {
		info apiversion.Info
		want string // empty if an error is expected
	}{
		"its own":            {apiversion.Info{Major: "1", Minor: "35"}, "1.35"},
		"of a provider":      {apiversion.Info{Major: "1", Minor: "34+"}, "1.34"},
		"emulated":           {apiversion.Info{Major: "1", Minor: "36", EmulationMajor: "1", EmulationMinor: "33"}, "1.33"},
		"not understandable": {apiversion.Info{GitVersion: "devel"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := versionOf(&c.info)
			if (err != nil) != (c.want == "") || err == nil && got.String() != c.want {
				t.Errorf("got %v, %v, want %q", got, err, c.want)
			}
		})
	}
}

// TestCostlyFeatureIsOff verifies that the feature is turned off unless the user sets it or the emulated version does
// not have it.
func TestCostlyFeatureIsOff(t *testing.T) {
	for name, c := range map[string]struct {
		gates, emulated string
		want            bool
	}{
		"by default":         {"", "[]", true},
		"other gates":        {":AllAlpha=true", "[1.34]", true},
		"the user's setting": {":" + costlyFeature + "=true", "[]", false},
		"unknown in 1.33":    {"", "[kube=1.33]", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := turnsOffCostlyFeature(c.gates, c.emulated); got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
}
