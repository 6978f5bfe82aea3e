// Package submit checks manifests, dry-runs them on the API server and creates their objects, with the rights of a
// user. It neither stores nor logs manifests. Start reading at Checker and Client.
package submit

import (
	"context"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	"tensorstack.dev/batch/internal/manifest"
)

// Limits of one submission.
const (
	// MostText is the largest size of a manifest in bytes.
	MostText = 128 << 10
	// MostObjects is the largest number of objects in a manifest.
	MostObjects = 50
	// maxErrors is the largest number of errors that a Checker reports for one object.
	maxErrors = 100
)

// Draft is a manifest that a user may submit, with its errors sorted by line.
type Draft struct {
	Text string
	// Namespace is the namespace of objects whose manifests have none.
	Namespace string
	// Objects are in the order of the text.
	Objects []manifest.Result
	Errors  []manifest.Diagnostic
}

// Checker finds the errors of manifests. It is safe for concurrent use. It checks one manifest at a time, so that
// checks use at most one CPU.
type Checker struct {
	turn    chan struct{}
	checker manifest.Checker
}

// NewChecker returns a Checker that reports at most maxErrors errors for each object.
func NewChecker() *Checker {
	return &Checker{turn: make(chan struct{}, 1), checker: manifest.Checker{MaxErrors: maxErrors}}
}

// Check returns a manifest with the errors that "t9k validate" reports, and errors that apply only to the page. If the
// text cannot be submitted on the page at all, for example because of its size, the draft has only these errors and no
// objects. The error result is for causes other than the manifest, such as the end of ctx.
func (c *Checker) Check(ctx context.Context, text, namespace string) (*Draft, error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	d := &Draft{Text: text, Namespace: namespace}
	if len(text) > MostText {
		d.report(1, fmt.Sprintf("the text is larger than %d KiB: submit it with t9k run", MostText>>10))
		return d, nil
	}
	if d.invisible(); len(d.Errors) > 0 {
		return d, nil
	}
	docs, diags, err := manifest.Read("", strings.NewReader(text))
	if err != nil { // the text has too many documents
		d.report(1, strings.TrimPrefix(err.Error(), "reading : "))
		return d, nil
	}
	if len(docs) > MostObjects {
		d.report(docs[MostObjects].Line, fmt.Sprintf("this is object %d of %d, and a page takes %d at once: submit them with t9k run", MostObjects+1, len(docs), MostObjects))
		return d, nil
	}
	c.checker.Namespace = namespace
	checked, err := c.checker.CheckDocs(ctx, docs, diags)
	if err != nil {
		return nil, err
	}
	d.Objects, d.Errors = checked.Results, checked.Errors
	d.names()
	manifest.Sort(d.Errors)
	return d, nil
}

func (d *Draft) report(line int, message string) {
	d.Errors = append(d.Errors, manifest.Diagnostic{Line: line, Message: message})
}

// invisible adds an error for each line that is not UTF-8 or has characters that a page can show only escaped. The text
// field would otherwise send back a different text.
func (d *Draft) invisible() {
	n := 0
	for line := range strings.Lines(d.Text) {
		n++
		if !utf8.ValidString(line) {
			d.report(n, "the text is not UTF-8")
			continue
		}
		i := strings.IndexFunc(line, func(r rune) bool {
			return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r)
		})
		if i >= 0 {
			r, _ := utf8.DecodeRuneInString(line[i:])
			d.report(n, fmt.Sprintf("the line has the invisible character %U: write it as \"\\u%04x\" in double quotes", r, r))
		}
	}
}

// names adds errors for duplicate objects, and for jobs without a namespace if the default namespace has an invalid
// name.
func (d *Draft) names() {
	first := map[string]int{}
	for i := range d.Objects {
		o := &d.Objects[i]
		namespace := o.Object.GetNamespace()
		if namespace == "" {
			namespace = d.Namespace
			if wrong := validation.IsDNS1123Label(namespace); o.Kind != nil && len(wrong) > 0 {
				d.Errors = append(d.Errors, o.At("metadata.namespace", fmt.Sprintf("the object names no namespace, and %q cannot be one", namespace)))
			}
		}
		if o.Object.GetName() == "" {
			continue
		}
		key := strings.Join([]string{o.Object.GroupVersionKind().GroupKind().String(), namespace, o.Object.GetName()}, "/")
		if line, twice := first[key]; twice {
			d.Errors = append(d.Errors, o.At("metadata.name", fmt.Sprintf("the manifest has this object twice: it also begins on line %d", line)))
			continue
		}
		first[key] = o.Line
	}
}
