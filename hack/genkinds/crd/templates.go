package crd

import "go.yaml.in/yaml/v3"

// mostKeys is the largest number of labels, and of annotations, in a template. The cost of rules that read each of them
// must be bounded.
const mostKeys = 256

// longestValue is the largest length of a label's value.
const longestValue = 63

// boundKeys limits the number of labels and annotations of a template.
func boundKeys(template *yaml.Node) {
	for _, keys := range []string{"labels", "annotations"} {
		set(value(template, "properties", "metadata", "properties", keys), "maxProperties", mostKeys)
	}
	set(value(template, "properties", "metadata", "properties", "labels", "additionalProperties"), "maxLength", longestValue)
}
