package convert

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// source holds the unconverted part of a manifest. Reading a field removes it, so the remaining fields are those that
// were never read.
type source struct {
	fields map[string]any
}

// take removes and returns a field. A null counts as absent.
func (s *source) take(path ...string) (any, bool) {
	v, found, err := unstructured.NestedFieldNoCopy(s.fields, path...)
	if !found || err != nil {
		return nil, false
	}
	unstructured.RemoveNestedField(s.fields, path...)
	return v, v != nil
}

// drop removes a field that needs no conversion.
func (s *source) drop(path ...string) { unstructured.RemoveNestedField(s.fields, path...) }

// left returns the paths of the remaining values, sorted by key, without nulls and empty lists and maps.
func (s *source) left() []string { return leaves(s.fields, "") }

func leaves(v any, at string) []string {
	var all []string
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			all = append(all, leaves(v[key], strings.TrimPrefix(at+"."+key, "."))...)
		}
		return all
	case []any:
		for i := range v {
			all = append(all, leaves(v[i], fmt.Sprintf("%s[%d]", at, i))...)
		}
		return all
	case nil:
		return nil
	}
	return []string{at}
}

// number removes and returns a whole number of 32 bits. It returns false if the field is absent or has another value,
// which is an error.
func (c *conversion) number(path ...string) (int64, bool) {
	v, ok := c.take(path...)
	if !ok {
		return 0, false
	}
	n, ok := v.(int64)
	if !ok || n < -1<<31 || n >= 1<<31 {
		c.fail(strings.Join(path, "."), quoted(v)+" is not an integer of 32 bits: write one")
		return 0, false
	}
	return n, true
}

// text removes and returns a string. It converts a whole number to a string. It returns false if the field is absent or
// has another value, which is an error.
func (c *conversion) text(path ...string) (string, bool) {
	v, ok := c.take(path...)
	if !ok {
		return "", false
	}
	switch v := v.(type) {
	case string:
		return v, true
	case int64:
		return fmt.Sprint(v), true
	}
	c.fail(strings.Join(path, "."), fmt.Sprintf("%v is not a string: quote it", v))
	return "", false
}

// flag removes and returns a boolean; false if the field is absent or has another value, which is an error.
func (c *conversion) flag(path ...string) bool {
	v, ok := c.take(path...)
	if !ok {
		return false
	}
	on, ok := v.(bool)
	if !ok {
		c.fail(strings.Join(path, "."), quoted(v)+" is neither true nor false")
	}
	return on
}

// quoted returns a value as it would be written in a manifest.
func quoted(v any) string {
	if s, ok := v.(string); ok {
		return strconv.Quote(s)
	}
	return fmt.Sprint(v)
}

// one removes a field with a fixed set of values and returns its translation. It returns false if the field is absent
// or empty, or if it has another value, which is an error.
func (c *conversion) one(words map[string]string, path ...string) (string, bool) {
	v, ok := c.text(path...)
	if !ok || v == "" {
		return "", false
	}
	word, ok := words[v]
	if !ok {
		c.fail(strings.Join(path, "."), fmt.Sprintf("%q is not known: write one of %s", v, strings.Join(slices.Sorted(maps.Keys(words)), ", ")))
	}
	return word, ok
}
