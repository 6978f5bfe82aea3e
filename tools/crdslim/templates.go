package main

import "go.yaml.in/yaml/v3"

// mostKeys is how many labels, and how many annotations, a template may have: the cost of rules that look at each of them must be
// bounded.
const mostKeys = 256

// longestValue is that of a label.
const longestValue = 63

// boundKeys bounds the labels and annotations of a template.
func boundKeys(template *yaml.Node) {
	for _, keys := range []string{"labels", "annotations"} {
		set(value(template, "properties", "metadata", "properties", keys), "maxProperties", mostKeys)
	}
	set(value(template, "properties", "metadata", "properties", "labels", "additionalProperties"), "maxLength", longestValue)
}
