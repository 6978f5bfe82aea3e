package monitoring

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sectionsOf returns the text of each section of the third level in a Markdown file, by heading.
func sectionsOf(t *testing.T, path string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, part := range strings.Split(string(data), "\n### ")[1:] {
		heading, text, _ := strings.Cut(part, "\n")
		text, _, _ = strings.Cut(text, "\n## ")
		sections[heading] = strings.TrimSpace(text)
	}
	return sections
}

// documentedMetrics returns the names of the series of all metrics that docs/reference/metrics.md describes.
func documentedMetrics(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for name, text := range sectionsOf(t, filepath.Join(root, "docs", "reference", "metrics.md")) {
		if !strings.HasPrefix(text, "Type: histogram.") {
			names[name] = true
			continue
		}
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			names[name+suffix] = true
		}
	}
	return names
}
