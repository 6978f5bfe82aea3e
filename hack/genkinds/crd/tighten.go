package crd

import "go.yaml.in/yaml/v3"

// name is the pattern of a DNS label.
const name = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"

// tighten adds to the schema of a pod template some requirements that the API server has for every pod. The schema that
// is generated from Kubernetes' types lacks them. Schema checks cost almost nothing, whereas a CEL rule that reads a
// template costs about half a millisecond for each write.
func tighten(template *yaml.Node) {
	require(template, "spec")
	spec := value(template, "properties", "spec", "properties")
	set(value(spec, "containers"), "minItems", 1)
	for _, list := range []string{"containers", "initContainers"} {
		container := value(spec, list, "items")
		require(container, "image")
		set(value(container, "properties", "image"), "minLength", 1)
		set(value(container, "properties", "name"), "maxLength", 63)
		set(value(container, "properties", "name"), "pattern", name)
		port := value(container, "properties", "ports", "items", "properties", "containerPort")
		set(port, "minimum", 1)
		set(port, "maximum", 65535)
	}
}

// require adds a property to the required properties of an object. It ignores a nil schema.
func require(schema *yaml.Node, property string) {
	if schema == nil {
		return
	}
	list := value(schema, "required")
	if list == nil {
		list = &yaml.Node{Kind: yaml.SequenceNode}
		schema.Content = append(schema.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "required"}, list)
	}
	for _, n := range list.Content {
		if n.Value == property {
			return
		}
	}
	list.Content = append(list.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: property})
}

// set sets a keyword of a schema. It ignores a nil schema.
func set(schema *yaml.Node, keyword string, to any) {
	if schema == nil {
		return
	}
	var n yaml.Node
	if err := n.Encode(to); err != nil {
		panic(err) // a number or a string can always be encoded
	}
	if old := value(schema, keyword); old != nil {
		*old = n
		return
	}
	schema.Content = append(schema.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: keyword}, &n)
}
