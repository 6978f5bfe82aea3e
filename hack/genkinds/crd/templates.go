package crd

import "go.yaml.in/yaml/v3"

// maxKeys is the largest number of labels, and of annotations, in a template. The cost of rules that read each of them
// must be bounded.
const maxKeys = 256

// maxValue is the largest length of a label's value.
const maxValue = 63

// boundKeys limits the number of labels and annotations of a template, and the length of label values.
func boundKeys(template *yaml.Node) {
	for _, keys := range []string{"labels", "annotations"} {
		set(value(template, "properties", "metadata", "properties", keys), "maxProperties", maxKeys)
	}
	set(value(template, "properties", "metadata", "properties", "labels", "additionalProperties"), "maxLength", maxValue)
}
