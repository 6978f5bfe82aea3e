package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// These lines enclose the table of values in the README.
const (
	tableBegin = "<!-- values: written by `make generate` from values.yaml -->\n"
	tableEnd   = "<!-- end of values -->\n"
)

// setting is a documented value.
type setting struct{ key, fallback, text string }

// writeReadme writes the table of values into the chart's README.
func writeReadme(dir string) error {
	settings, err := readSettings(filepath.Join(dir, "values.yaml"))
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "README.md")
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(page), tableBegin)
	_, after, closed := strings.Cut(rest, tableEnd)
	if !ok || !closed {
		return fmt.Errorf("%s has no place for the table of values", path)
	}
	var table strings.Builder
	table.WriteString("| value | default | meaning |\n|---|---|---|\n")
	for _, s := range settings {
		fmt.Fprintf(&table, "| `%s` | `%s` | %s |\n", s.key, s.fallback, s.text)
	}
	return write(path, []byte(before+tableBegin+table.String()+tableEnd+after))
}

// readSettings reads the documented values of a file, whose comments begin with "-- ". Every value that is not a
// mapping must have such a comment or be nested in a value that has one.
func readSettings(path string) ([]setting, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return settingsOf("", document.Content[0])
}

func settingsOf(prefix string, mapping *yaml.Node) ([]setting, error) {
	var settings []setting
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		name := prefix + key.Value
		if text, ok := strings.CutPrefix(key.HeadComment, "# -- "); ok {
			fallback, err := compact(value)
			if err != nil {
				return nil, err
			}
			settings = append(settings, setting{name, fallback, strings.ReplaceAll(text, "\n# ", " ")})
			continue
		}
		if value.Kind != yaml.MappingNode {
			return nil, fmt.Errorf("value %s has no comment that begins with \"-- \"", name)
		}
		inner, err := settingsOf(name+".", value)
		if err != nil {
			return nil, err
		}
		settings = append(settings, inner...)
	}
	return settings, nil
}

// compact returns a value as JSON on one line.
func compact(value *yaml.Node) (string, error) {
	var v any
	if err := value.Decode(&v); err != nil {
		return "", err
	}
	data, err := json.Marshal(v)
	return string(data), err
}
