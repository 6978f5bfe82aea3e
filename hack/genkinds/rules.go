package main

import (
	"bytes"
	"fmt"
	"os"

	"go.yaml.in/yaml/v3"

	"tensorstack.dev/batch/internal/kinds"
)

// validations is the keyword of a schema under which the API server finds rules.
const validations = "x-kubernetes-validations"

// rules adds to the CRD of each kind the rules that package kinds has for it.
func (g generator) rules() error {
	for _, k := range g.all {
		if err := addRules(g.crd(k), k.SchemaRules()); err != nil {
			return fmt.Errorf("adding the rules of %s: %w", k.Name, err)
		}
	}
	return nil
}

// addRules adds rules to a CRD, behind those that it has. A rule that is there already stays where it is.
func addRules(file string, rules []kinds.SchemaRule) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return fmt.Errorf("parsing %s: %w", file, err)
	}
	versions := child(child(doc.Content[0], "spec"), "versions")
	if versions == nil {
		return fmt.Errorf("%s is no CRD", file)
	}
	for _, version := range versions.Content {
		if err := extend(child(child(version, "schema"), "openAPIV3Schema"), rules); err != nil {
			return err
		}
	}
	var out bytes.Buffer
	out.WriteString("---\n")
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	enc.CompactSeqIndent()
	if err := enc.Encode(&doc); err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	if bytes.Equal(out.Bytes(), data) {
		return nil
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}

// extend adds rules to a schema.
func extend(schema *yaml.Node, rules []kinds.SchemaRule) error {
	list := child(schema, validations)
	if list == nil {
		list = &yaml.Node{Kind: yaml.SequenceNode}
		schema.Content = append(schema.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: validations}, list)
	}
	there := map[string]bool{}
	for _, n := range list.Content {
		if rule := child(n, "rule"); rule != nil {
			there[rule.Value] = true
		}
	}
	for _, r := range rules {
		if there[r.Rule] {
			continue
		}
		var n yaml.Node
		if err := n.Encode(r); err != nil {
			return err
		}
		list.Content = append(list.Content, &n)
	}
	return nil
}

// child is the value of a key of a mapping; nil where there is none.
func child(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}
