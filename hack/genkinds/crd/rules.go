package crd

import (
	"errors"

	"go.yaml.in/yaml/v3"

	"tensorstack.dev/batch/internal/kinds"
)

// validations is the keyword of a schema under which the API server finds rules.
const validations = "x-kubernetes-validations"

// addRules appends rules to the schema of each version of a CRD. It does not move rules that already exist.
func addRules(doc *yaml.Node, rules []kinds.SchemaRule) error {
	if len(rules) == 0 {
		return nil
	}
	versions := value(doc.Content[0], "spec", "versions")
	if versions == nil {
		return errors.New("the file is no CRD: it has no spec.versions")
	}
	for _, version := range versions.Content {
		schema := value(version, "schema", "openAPIV3Schema")
		if schema == nil {
			return errors.New("a version of the CRD has no schema")
		}
		if err := extend(schema, rules); err != nil {
			return err
		}
	}
	return nil
}

// extend appends to a schema the rules that the schema does not have yet.
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
