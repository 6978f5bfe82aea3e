// Package manifest reads manifests and reports, without a cluster, the errors that admission would report, with their
// lines. Start reading at Read and Checker.
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

// Limits of manifests: the size of a file and of a document in bytes, the number of documents in a file, and the depth
// of a document in levels. No cluster accepts larger objects, and reading more would use up the memory of this machine.
const (
	maxFile      = 32 << 20
	maxDocument  = 3 << 20 // the API server's limit for a request
	maxDocuments = 10_000
	maxDepth     = 100
)

// Doc is one object of a manifest.
type Doc struct {
	// File is the name of the manifest. Line is the line of the file on which the object begins.
	File string
	Line int
	// Path is the path of the object in its document; nil unless it is an item of a list.
	Path *field.Path
	// Object is the object as written.
	Object *unstructured.Unstructured

	at *positions
}

// WithObject returns the document with another object. Errors of this object have the line on which the document
// begins.
func (d Doc) WithObject(object *unstructured.Unstructured) Doc {
	return Doc{File: d.File, Line: d.Line, Object: object}
}

// At returns an error or a warning about a field of the object. path is the path of the field in the object; the result
// has its path in the document, and the line of the field or of its nearest existing parent.
func (d Doc) At(path, message string) Diagnostic {
	full := path
	if d.Path != nil {
		full = strings.TrimSuffix(d.Path.String()+"."+path, ".")
	}
	line := d.Line
	if d.at != nil {
		line = d.at.line(full)
	}
	return Diagnostic{d.File, line, full, message}
}

// Diagnostic is one error or warning about a manifest.
type Diagnostic struct {
	File string
	Line int
	// Path is the path of the field in its document; empty if the error does not belong to a field.
	Path    string
	Message string
}

// String returns the error as one line: FILE:LINE: PATH: MESSAGE.
func (f Diagnostic) String() string {
	if f.Path == "" {
		return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Message)
	}
	return fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, f.Path, f.Message)
}

// Read splits a manifest into its objects. The manifest is YAML or JSON with any number of documents; items of lists
// count as objects. It returns a Diagnostic for each document or item that cannot be parsed, is too large, or is not an
// object with apiVersion and kind. The error means that the manifest cannot be read, is too large or has too many
// documents.
func Read(file string, r io.Reader) ([]Doc, []Diagnostic, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w", file, err)
	}
	if len(data) > maxFile {
		return nil, nil, fmt.Errorf("reading %s: it is larger than %d MiB: split it", file, maxFile>>20)
	}
	var docs []Doc
	var diags []Diagnostic
	for n, part := range split(data) {
		if n == maxDocuments {
			return nil, nil, fmt.Errorf("reading %s: it has more than %d documents: split it", file, maxDocuments)
		}
		at, object, wrong := part.read(file)
		diags = append(diags, wrong...)
		if object == nil {
			continue
		}
		found, wrong := objects(Doc{File: file, Line: at.first, Object: &unstructured.Unstructured{Object: object}, at: at})
		docs, diags = append(docs, found...), append(diags, wrong...)
	}
	return docs, diags, nil
}

// part is the text of one document and the number of lines before it. json is true if the text is JSON.
type part struct {
	text []byte
	line int
	json bool
}

// read parses a document. An empty document has neither an object nor errors.
func (p part) read(file string) (*positions, map[string]any, []Diagnostic) {
	if len(p.text) > maxDocument {
		return nil, nil, []Diagnostic{{File: file, Line: p.firstLine(), Message: fmt.Sprintf("the document is larger than %d MiB, which no API server accepts: make it smaller", maxDocument>>20)}}
	}
	at := newPositions(p)
	if depth(at.root, maxDepth+1) > maxDepth {
		return nil, nil, []Diagnostic{{File: file, Line: at.first, Message: fmt.Sprintf("the document has more than %d levels of lists and mappings, which no object has", maxDepth)}}
	}
	object, err := p.parse()
	if err == nil {
		return at, object, nil
	}
	var wrong syntaxErrors
	if !errors.As(err, &wrong) {
		return nil, nil, []Diagnostic{{File: file, Line: at.first, Message: err.Error()}}
	}
	for i := range wrong {
		wrong[i].File = file
	}
	return nil, nil, wrong
}

// firstLine returns the number, counted in the file, of the first line of the part that is neither empty nor a comment.
// If there is no such line, it returns the first line of the part.
func (p part) firstLine() int {
	n := p.line
	for l := range bytes.Lines(p.text) {
		n++
		if text := bytes.TrimSpace(l); len(text) > 0 && text[0] != '#' {
			return n
		}
	}
	return p.line + 1
}

// lastLine returns the number, counted in the file, of the last line of the part. The YAML parser can report an error
// after this line.
func (p part) lastLine() int {
	return p.line + 1 + bytes.Count(bytes.TrimSuffix(p.text, []byte("\n")), []byte("\n"))
}

// split splits a stream into documents: consecutive JSON objects, or YAML between lines that begin with "---".
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

// splitJSON returns the documents if all of data is a sequence of JSON objects, otherwise nil.
func splitJSON(data []byte) []part {
	var parts []part
	decoder := json.NewDecoder(bytes.NewReader(data))
	for {
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return parts
		}
		if err != nil || !bytes.HasPrefix(raw, []byte("{")) {
			return nil
		}
		start := int(decoder.InputOffset()) - len(raw)
		parts = append(parts, part{text: raw, line: bytes.Count(data[:start], []byte("\n")), json: true})
	}
}

// syntaxErrors are errors without the name of their file.
type syntaxErrors []Diagnostic

func (s syntaxErrors) Error() string { return fmt.Sprintf("%d syntax errors", len(s)) }

var (
	errNoObject = errors.New("not an object: a manifest begins with apiVersion and kind")
	lineNumber  = regexp.MustCompile(`^line (\d+): `)
	// parserError matches the errors of the YAML parser whose line numbers start from 0. The line numbers of other
	// errors start from 1.
	parserError = regexp.MustCompile(`^did not find expected (<|node content|key|'-' indicator|',' or)`)
)

// parse decodes a document strictly: a duplicate key is an error. It returns nil for an empty document.
func (p part) parse() (map[string]any, error) {
	data, err := yaml.YAMLToJSONStrict(p.text)
	if err != nil {
		return nil, p.syntax(err)
	}
	if string(data) == "null" {
		return nil, nil
	}
	if !bytes.HasPrefix(data, []byte("{")) {
		return nil, errNoObject
	}
	var content map[string]any
	if err := utiljson.Unmarshal(data, &content); err != nil {
		return nil, err
	}
	return content, nil
}

// syntax returns the errors of a document that is neither YAML nor JSON, each with its line.
func (p part) syntax(err error) syntaxErrors {
	text := bytes.TrimSpace(p.text)
	var broken *json.SyntaxError
	if len(text) > 0 && text[0] == '{' && errors.As(json.Unmarshal(p.text, new(any)), &broken) && bytes.ContainsRune(text, '"') {
		read := p.text[:min(int(broken.Offset), len(p.text))]
		return syntaxErrors{{Line: p.line + 1 + bytes.Count(bytes.TrimRight(read, "\n"), []byte("\n")), Message: "not valid JSON: " + broken.Error()}}
	}
	var all syntaxErrors
	for l := range strings.Lines(err.Error()) {
		l = strings.TrimPrefix(strings.TrimSpace(l), "error converting YAML to JSON: ")
		l = strings.TrimPrefix(strings.TrimSpace(strings.TrimPrefix(l, "yaml: ")), "unmarshal errors:")
		if l == "" {
			continue
		}
		line := p.firstLine()
		if m := lineNumber.FindStringSubmatch(l); m != nil {
			n, _ := strconv.Atoi(m[1])
			line, l = p.line+n, l[len(m[0]):]
			if parserError.MatchString(l) {
				line++
			}
			line = min(line, p.lastLine())
		}
		all = append(all, Diagnostic{Line: line, Message: "not valid YAML: " + l})
	}
	return all
}

// objects returns the object of a document or, if it is a list, the objects in it. It checks the fields that every
// object must have.
func objects(d Doc) (all []Doc, diags []Diagnostic) {
	if !d.Object.IsList() {
		switch {
		case d.Object.GetAPIVersion() == "":
			return nil, []Diagnostic{d.At("apiVersion", "Required value")}
		case d.Object.GetKind() == "":
			return nil, []Diagnostic{d.At("kind", "Required value")}
		}
		return []Doc{d}, nil
	}
	// The items are not copied: copying every level of nested lists would take too long.
	items, _ := d.Object.Object["items"].([]any)
	for i, item := range items {
		next := Doc{File: d.File, Line: d.Line, Path: d.Path.Child("items").Index(i), at: d.at}
		next.Line = next.At("", "").Line
		content, ok := item.(map[string]any)
		if !ok {
			diags = append(diags, next.At("", "not an object"))
			continue
		}
		next.Object = &unstructured.Unstructured{Object: content}
		found, wrong := objects(next)
		all, diags = append(all, found...), append(diags, wrong...)
	}
	return all, diags
}

// Sort sorts the errors of one file by line. Errors of one line keep their order.
func Sort(diags []Diagnostic) {
	slices.SortStableFunc(diags, func(a, b Diagnostic) int { return a.Line - b.Line })
}
