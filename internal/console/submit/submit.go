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
	// maxFaults is the largest number of faults that are reported of one object.
	maxFaults = 100
)

// Draft is a manifest that a user may submit, with its faults sorted by line.
type Draft struct {
	Text string
	// Namespace is the namespace of objects whose manifests have none.
	Namespace string
	// Objects are in the order of the text.
	Objects []manifest.Result
	Faults  []manifest.Fault
}

// Checker finds the faults of manifests. It is safe for concurrent use. It checks one manifest at a time, so that
// checks use at most one CPU.
type Checker struct {
	turn    chan struct{}
	checker manifest.Checker
}

// NewChecker returns a Checker that checks one manifest at a time and reports at most maxFaults faults of an object.
func NewChecker() *Checker {
	return &Checker{turn: make(chan struct{}, 1), checker: manifest.Checker{MaxFaults: maxFaults}}
}

// Check returns a manifest with the faults that "t9k validate" reports, and faults that apply only to the page. The
// returned error is not caused by the manifest.
func (c *Checker) Check(ctx context.Context, text, namespace string) (*Draft, error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	d := &Draft{Text: text, Namespace: namespace}
	if len(text) > MostText {
		d.fault(1, fmt.Sprintf("the text is larger than %d KiB: submit it with t9k run", MostText>>10))
		return d, nil
	}
	if d.invisible(); len(d.Faults) > 0 {
		return d, nil
	}
	docs, faults, err := manifest.Read("", strings.NewReader(text))
	if err != nil { // the text has too many documents
		d.fault(1, strings.TrimPrefix(err.Error(), "reading : "))
		return d, nil
	}
	if len(docs) > MostObjects {
		d.fault(docs[MostObjects].Line, fmt.Sprintf("this is object %d of %d, and a page takes %d at once: submit them with t9k run", MostObjects+1, len(docs), MostObjects))
		return d, nil
	}
	c.checker.Namespace = namespace
	checked, err := c.checker.CheckDocs(ctx, docs, faults)
	if err != nil {
		return nil, err
	}
	d.Objects, d.Faults = checked.Results, checked.Faults
	d.names()
	manifest.Sort(d.Faults)
	return d, nil
}

func (d *Draft) fault(line int, message string) {
	d.Faults = append(d.Faults, manifest.Fault{Line: line, Message: message})
}

// invisible reports characters that a page can only show escaped, because the text field would then send back a
// different text.
func (d *Draft) invisible() {
	n := 0
	for line := range strings.Lines(d.Text) {
		n++
		if !utf8.ValidString(line) {
			d.fault(n, "the text is not UTF-8")
			continue
		}
		i := strings.IndexFunc(line, func(r rune) bool {
			return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r)
		})
		if i >= 0 {
			r, _ := utf8.DecodeRuneInString(line[i:])
			d.fault(n, fmt.Sprintf("the line has the invisible character %U: write it as \"\\u%04x\" in double quotes", r, r))
		}
	}
}

// names reports duplicate objects and invalid namespace names.
func (d *Draft) names() {
	first := map[string]int{}
	for i := range d.Objects {
		o := &d.Objects[i]
		namespace := o.Object.GetNamespace()
		if namespace == "" {
			namespace = d.Namespace
			if wrong := validation.IsDNS1123Label(namespace); o.Kind != nil && len(wrong) > 0 {
				d.Faults = append(d.Faults, o.Fault("metadata.namespace", fmt.Sprintf("the object names no namespace, and %q cannot be one", namespace)))
			}
		}
		if o.Object.GetName() == "" {
			continue
		}
		key := strings.Join([]string{o.Object.GroupVersionKind().GroupKind().String(), namespace, o.Object.GetName()}, "/")
		if line, twice := first[key]; twice {
			d.Faults = append(d.Faults, o.Fault("metadata.name", fmt.Sprintf("the manifest has this object twice: it also begins on line %d", line)))
			continue
		}
		first[key] = o.Line
	}
}
