package kinds

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestTextsThatLookLikeVariablesCauseWarnings(t *testing.T) {
	job := trainJob()
	v := vocabulary{job, &job.Roles[0]}
	container := &corev1.Container{Env: []corev1.EnvVar{{Name: "RANK"}, {Name: "ranks"}}}
	for text, want := range map[string]string{
		"$(rank) $(type) $(RANK) $(ranks) $(date) $HOME": "",
		"$(rnak)":                  "$(rank)?",
		"$(servce.worker[3].host)": "$(service.worker[0].host)?",
		"$(replica[ps])":           "$(replicas[ps])?",
		"$$(rnak) $$$$(rnak)":      "",
		"$(cmd $(rank))":           "$(rank) is not replaced",
		"$(( $(rank) + 1 ))":       "$(rank) is not replaced",
		"$(echo $(date))":          "",
		"$$(cmd $(rank))":          "", // the first $ escapes the second
		"$(rnak":                   "",
	} {
		got := strings.Join(v.suspects(text, v.names(), container), "; ")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("warnings about %s: %q, want %q", text, got, want)
		}
	}
}
