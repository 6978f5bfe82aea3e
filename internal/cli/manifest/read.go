// Package manifest reads manifests and says, without any cluster, all that admission would object to.
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// Doc is one object of a manifest.
type Doc struct {
	// File is the name under which the manifest was read.
	File string
	// Index numbers the documents of the file that are not empty, from 1.
	Index int
	// Path is where the object stands in its document; nil unless it is an item of a list.
	Path *field.Path
	// Object is the object as it was written.
	Object *unstructured.Unstructured
}

// Fault is one thing that is wrong with a manifest.
type Fault struct {
	File string
	Doc  int
	// Message begins with the path of the field, where there is one.
	Message string
}

// String is the fault in one line: FILE:DOC PATH: MESSAGE.
func (f Fault) String() string { return fmt.Sprintf("%s:%d %s", f.File, f.Doc, f.Message) }

// Read splits a manifest, YAML or JSON with any number of documents, into its objects. Items of lists count as objects.
// What cannot be parsed is a fault; the error is one of reading.
func Read(file string, r io.Reader) ([]Doc, []Fault, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w", file, err)
	}
	var docs []Doc
	var faults []Fault
	index := 0
	for _, part := range split(data) {
		object, err := part.parse()
		if err == nil && object == nil {
			continue
		}
		index++
		if err != nil {
			faults = append(faults, Fault{file, index, err.Error()})
			continue
		}
		found, wrong := objects(Doc{File: file, Index: index, Object: &unstructured.Unstructured{Object: object}})
		docs, faults = append(docs, found...), append(faults, wrong...)
	}
	return docs, faults, nil
}

// part is the text of one document and the number of lines before it.
type part struct {
	text []byte
	line int
}

// split cuts a stream into documents: JSON values one after the other, or YAML between lines of "---".
func split(data []byte) []part {
	if parts := splitJSON(data); parts != nil {
		return parts
	}
	var parts []part
	current := part{}
	number := 0
	for l := range bytes.Lines(data) {
		number++
		if rest, ok := bytes.CutPrefix(l, []byte("---")); ok && (len(rest) == 0 || bytes.ContainsAny(rest[:1], " \t\r\n")) {
			parts = append(parts, current)
			current = part{line: number - 1}
			l = append([]byte("   "), rest...)
		}
		current.text = append(current.text, l...)
	}
	return append(parts, current)
}

// splitJSON is nil unless all of data is a sequence of JSON objects.
func splitJSON(data []byte) []part {
	var parts []part
	decoder := json.NewDecoder(bytes.NewReader(data))
	for {
		var raw json.RawMessage
		start := decoder.InputOffset()
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return parts
		}
		if err != nil || !bytes.HasPrefix(raw, []byte("{")) {
			return nil
		}
		parts = append(parts, part{text: raw, line: bytes.Count(data[:start], []byte("\n"))})
	}
}

var lineNumber = regexp.MustCompile(`line (\d+)`)

// parse reads a document strictly: a key given twice is an error. An empty document is nil.
func (p part) parse() (map[string]any, error) {
	data, err := yaml.YAMLToJSONStrict(p.text)
	if err != nil {
		text := strings.Join(strings.Fields(err.Error()), " ")
		text = strings.TrimPrefix(strings.TrimPrefix(text, "yaml: "), "unmarshal errors: ")
		return nil, errors.New(lineNumber.ReplaceAllStringFunc(text, func(m string) string {
			n, _ := strconv.Atoi(strings.TrimPrefix(m, "line "))
			return fmt.Sprintf("line %d", n+p.line)
		}))
	}
	if string(data) == "null" {
		return nil, nil
	}
	if !bytes.HasPrefix(data, []byte("{")) {
		return nil, errors.New("not an object: a manifest begins with apiVersion and kind")
	}
	var content map[string]any
	if err := utiljson.Unmarshal(data, &content); err != nil {
		return nil, err
	}
	return content, nil
}

// objects takes lists apart and checks what every object needs.
func objects(d Doc) (all []Doc, faults []Fault) {
	fault := func(at *field.Path, message string) ([]Doc, []Fault) {
		return nil, []Fault{{d.File, d.Index, at.String() + ": " + message}}
	}
	if !d.Object.IsList() {
		switch {
		case d.Object.GetAPIVersion() == "":
			return fault(d.Path.Child("apiVersion"), "Required value")
		case d.Object.GetKind() == "":
			return fault(d.Path.Child("kind"), "Required value")
		}
		return []Doc{d}, nil
	}
	items, _, err := unstructured.NestedSlice(d.Object.Object, "items")
	if err != nil {
		return fault(d.Path.Child("items"), err.Error())
	}
	for i, item := range items {
		at := d.Path.Child("items").Index(i)
		content, ok := item.(map[string]any)
		if !ok {
			faults = append(faults, Fault{d.File, d.Index, at.String() + ": not an object"})
			continue
		}
		found, wrong := objects(Doc{d.File, d.Index, at, &unstructured.Unstructured{Object: content}})
		all, faults = append(all, found...), append(faults, wrong...)
	}
	return all, faults
}

// Sort orders the faults of one file by document, and leaves those of one document in the order in which they were found.
func Sort(faults []Fault) {
	slices.SortStableFunc(faults, func(a, b Fault) int { return a.Doc - b.Doc })
}
