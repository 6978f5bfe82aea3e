// Package crd fits the CRD files that controller-gen writes. It removes the descriptions of Kubernetes' own fields from
// pod templates, makes the schemas require some of what the API server requires of every pod, limits values that
// clients could not decode or that would make rules too expensive, and adds the rules of the kinds of job. Start
// reading at Fit.
//
// The descriptions are two thirds of such a CRD, and `kubectl explain pod` shows the same descriptions. Without them, a
// CRD stays below the 256 KiB that client-side `kubectl apply` can handle and costs the API server less memory.
// Descriptions of the product's own fields are kept.
package crd

import (
	"bytes"

	"go.yaml.in/yaml/v3"

	"tensorstack.dev/batch/internal/kinds"
)

// Fit returns a CRD file with fitted schemas and with the given rules appended to its existing rules. Fit is
// idempotent.
func Fit(file []byte, rules []kinds.SchemaRule) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(file, &doc); err != nil {
		return nil, err
	}
	slim(&doc)
	fit(&doc)
	if err := addRules(&doc, rules); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.WriteString("---\n")
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	enc.CompactSeqIndent()
	if err := enc.Encode(&doc); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// slim traverses a schema. It removes the descriptions below each pod template, and tightens and bounds the template.
func slim(n *yaml.Node) {
	if isPodTemplate(n) {
		strip(value(n, "properties"))
		tighten(n)
		boundKeys(n)
		return
	}
	for _, child := range n.Content {
		slim(child)
	}
}

// isPodTemplate reports whether a schema describes an object with spec.containers. Only pod templates have that field.
func isPodTemplate(schema *yaml.Node) bool {
	return value(schema, "properties", "spec", "properties", "containers") != nil
}

// strip removes the descriptions of a set of properties and of everything below them. It keeps a key named description
// inside `properties`, because that is a field.
func strip(properties *yaml.Node) {
	if properties == nil || properties.Kind != yaml.MappingNode {
		return
	}
	for i := 1; i < len(properties.Content); i += 2 {
		stripSchema(properties.Content[i])
	}
}

func stripSchema(schema *yaml.Node) {
	if schema.Kind != yaml.MappingNode {
		return
	}
	kept := schema.Content[:0]
	for i := 0; i < len(schema.Content); i += 2 {
		key, val := schema.Content[i], schema.Content[i+1]
		switch key.Value {
		case "description":
			continue
		case "properties":
			strip(val)
		case "items", "additionalProperties":
			stripSchema(val)
		}
		kept = append(kept, key, val)
	}
	schema.Content = kept
}

// value follows keys through nested mappings. It returns nil if a key is missing.
func value(n *yaml.Node, keys ...string) *yaml.Node {
	for _, key := range keys {
		if n = child(n, key); n == nil {
			return nil
		}
	}
	return n
}

func child(n *yaml.Node, key string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}
