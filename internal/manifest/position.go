package manifest

import (
	"bytes"
	"strconv"
	"strings"

	yamlnode "go.yaml.in/yaml/v3"
)

// positions maps the fields of a document to lines.
type positions struct {
	// root is the document; nil if only its first line is known.
	root *yamlnode.Node
	// before is the number of lines in the file before the text from which root was parsed. first is the line on which
	// the document starts.
	before, first int
}

// newPositions parses the text of a document to find the positions of its fields.
func newPositions(p part) *positions {
	text := p.text
	if p.json { // in JSON, a tab outside of a string is white space; in YAML, it is not
		text = bytes.ReplaceAll(text, []byte("\t"), []byte(" "))
	}
	at := &positions{before: p.line, first: p.firstLine()}
	var document yamlnode.Node
	if err := yamlnode.Unmarshal(text, &document); err == nil && len(document.Content) == 1 {
		at.root = document.Content[0]
		at.first = p.line + at.root.Line
	}
	return at
}

// depth returns the number of levels of a document, at most limit. Each list, mapping and scalar is one level.
func depth(n *yamlnode.Node, limit int) int {
	if n == nil || limit == 0 {
		return 0
	}
	deepest := 0
	for _, c := range n.Content {
		deepest = max(deepest, depth(c, limit-1))
	}
	return deepest + 1
}

// line returns the line of a field, or of the nearest existing parent.
func (p *positions) line(path string) int {
	if p.root == nil {
		return p.first
	}
	key, _, _ := find(p.root, p.root, path)
	return p.before + key.Line
}

// find resolves a path such as spec.replicaSpecs[0].template as far as it exists. It returns the node to report (the
// key or list item), its value, and the rest of the path that does not exist.
func find(key, value *yamlnode.Node, path string) (at, what *yamlnode.Node, rest string) {
	for value.Kind == yamlnode.AliasNode {
		value = value.Alias
	}
	path = strings.TrimPrefix(path, ".")
	if path == "" {
		return key, value, ""
	}
	switch value.Kind {
	case yamlnode.SequenceNode:
		digits, after, ok := strings.Cut(strings.TrimPrefix(path, "["), "]")
		i, err := strconv.Atoi(digits)
		if ok && err == nil && i >= 0 && i < len(value.Content) {
			return find(value.Content[i], value.Content[i], after)
		}
	case yamlnode.MappingNode:
		if i, after := entry(value, path); i >= 0 {
			return find(value.Content[i], value.Content[i+1], after)
		}
		for i := 0; i+1 < len(value.Content); i += 2 {
			if value.Content[i].Tag != "!!merge" {
				continue
			}
			if at, what, rest := find(key, value.Content[i+1], path); len(rest) < len(path) {
				return at, what, rest
			}
		}
	}
	return key, value, path
}

// entry returns the index of the longest key of a mapping with which a path begins, written as .KEY or [KEY]; -1 if
// there is none. after is the rest of the path. Keys may contain dots.
func entry(mapping *yamlnode.Node, path string) (i int, after string) {
	i = -1
	longest := 0
	for k := 0; k+1 < len(mapping.Content); k += 2 {
		name := mapping.Content[k].Value
		for _, form := range []string{name, "[" + name + "]"} {
			rest, ok := strings.CutPrefix(path, form)
			if ok && len(form) > longest && (rest == "" || rest[0] == '.' || rest[0] == '[') {
				i, after, longest = k, rest, len(form)
			}
		}
	}
	return i, after
}

// search finds the first value at a path for which fits returns true. The given path, names, has no list indices,
// because decoders leave them out. The returned path has them.
func search(value *yamlnode.Node, names []string, fits func(*yamlnode.Node) bool) (path string, found bool) {
	for value.Kind == yamlnode.AliasNode {
		value = value.Alias
	}
	if value.Kind == yamlnode.SequenceNode {
		for i, item := range value.Content {
			if rest, ok := search(item, names, fits); ok {
				return "[" + strconv.Itoa(i) + "]" + rest, true
			}
		}
		return "", len(names) == 0 && fits(value)
	}
	if len(names) == 0 {
		return "", fits(value)
	}
	if value.Kind != yamlnode.MappingNode {
		return "", false
	}
	for i := 0; i+1 < len(value.Content); i += 2 {
		if value.Content[i].Value != names[0] {
			continue
		}
		if rest, ok := search(value.Content[i+1], names[1:], fits); ok {
			return "." + names[0] + rest, true
		}
	}
	return "", false
}
