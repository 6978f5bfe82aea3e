// Command crdslim fits the schemas of pod templates in CRD files, in place: it removes the descriptions of Kubernetes' own
// fields, and makes the schema ask for what every pod must have.
//
// The descriptions are two thirds of such a CRD and say what `kubectl explain pod` says. Without them a CRD stays
// below the 256 KiB that client-side `kubectl apply` can carry and costs the API server less memory. Descriptions of
// the product's own fields stay whole.
package main

import (
	"bytes"
	"fmt"
	"os"

	"go.yaml.in/yaml/v3"
)

func main() {
	for _, path := range os.Args[1:] {
		if err := slimFile(path); err != nil {
			fmt.Fprintf(os.Stderr, "crdslim: %v\n", err)
			os.Exit(1)
		}
	}
}

func slimFile(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return fmt.Errorf("parsing %s: %w", path, err)
	}
	slim(&doc)
	fit(&doc)
	var out bytes.Buffer
	out.WriteString("---\n")
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	enc.CompactSeqIndent()
	if err := enc.Encode(&doc); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if bytes.Equal(out.Bytes(), data) {
		return nil
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// slim walks the schema and strips everything below each pod template.
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

// isPodTemplate reports whether a schema describes an object with spec.containers. Only pod templates have that
// field.
func isPodTemplate(schema *yaml.Node) bool {
	return value(schema, "properties", "spec", "properties", "containers") != nil
}

// strip removes the descriptions of a set of properties and of everything below them. It keeps a key named
// description inside `properties`, because that is a field.
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
