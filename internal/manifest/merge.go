package manifest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// codeCheck returns the errors that Go code finds in an object. It returns an error if the object cannot be decoded.
type codeCheck func(*unstructured.Unstructured) (field.ErrorList, error)

// check returns the errors that the code check finds in an object. known are the errors that the schema has found in
// the object. If values cannot be decoded, check runs the code check twice: without these values, and with stand-ins
// for them. It then returns only the errors that both runs find and that do not follow from such a value. If the object
// cannot be decoded even then, the result is nil, or the decoding error if known is empty.
func (check codeCheck) check(u *unstructured.Unstructured, known field.ErrorList) field.ErrorList {
	if check == nil {
		return nil
	}
	for _, unreadable := range []func(*field.Error) bool{isOfWrongType, cannotBeRead} {
		without, replaced := u.DeepCopy(), u.DeepCopy()
		var left []string
		for _, e := range known {
			if unreadable(e) && replace(without.Object, e.Field, nil) && replace(replaced.Object, e.Field, standIn(e)) {
				left = append(left, plain(e.Field))
			}
		}
		errs, err := check(without)
		switch {
		case err == nil && len(left) == 0:
			return errs
		case err == nil:
			others, err := check(replaced)
			if err != nil {
				return nil
			}
			return slices.DeleteFunc(errs, func(e *field.Error) bool {
				again := slices.ContainsFunc(others, func(o *field.Error) bool { return o.Error() == e.Error() })
				return !again || slices.ContainsFunc(left, func(l string) bool { return follows(e, l) })
			})
		case len(known) == 0:
			return field.ErrorList{field.Invalid(nil, field.OmitValueType{}, err.Error())}
		}
	}
	return nil
}

func isOfWrongType(e *field.Error) bool { return e.Type == field.ErrorTypeTypeInvalid }

func cannotBeRead(e *field.Error) bool {
	return isOfWrongType(e) || strings.Contains(e.Detail, quantityPattern)
}

// standInName is a name that no manifest uses.
const standInName = "stand-in"

// standIn returns a value that can be decoded instead of the value that e reports. The value differs from defaults, so
// that errors that depend on it differ too: a number is large, and a name is unusual.
func standIn(e *field.Error) any {
	_, wanted, _ := strings.Cut(e.Detail, "must be of type ")
	wanted, _, _ = strings.Cut(wanted, ":")
	switch {
	case strings.Contains(e.Detail, quantityPattern):
		return "1"
	case strings.Contains(wanted, "integer"), strings.Contains(wanted, "number"):
		return int64(1000)
	case wanted == "boolean":
		return true
	case wanted == "string":
		return standInName
	case wanted == "object":
		return standInObject(e.Field)
	case lastName(e.Field) == "replicaSpecs":
		return []any{map[string]any{"type": standInName}}
	}
	return []any{}
}

// standInObject returns an object for a path. It sets the fields on which other checks depend.
func standInObject(path string) map[string]any {
	switch lastName(path) {
	case "elastic":
		return map[string]any{"enabled": true, "minReplicas": int64(1), "maxReplicas": int64(1000), "expectedReplicas": int64(1)}
	case "scheduler":
		return map[string]any{"t9kScheduler": map[string]any{"queue": standInName}}
	case "t9kScheduler":
		return map[string]any{"queue": standInName}
	}
	if strings.HasSuffix(path, "]") && strings.Contains(path, "replicaSpecs[") {
		return map[string]any{"type": standInName}
	}
	return map[string]any{}
}

// follows reports whether an error may be a consequence of a value that was left out, regardless of its stand-in.
func follows(e *field.Error, left string) bool {
	at := plain(e.Field)
	switch {
	case within(at, left), within(left, at):
		return true
	case strings.Contains(left, ".volumes"):
		return strings.Contains(at, ".volumeMounts[")
	case strings.HasPrefix(left, "spec.service."):
		return strings.Contains(fmt.Sprint(e.BadValue), "service.port[")
	}
	return false
}

// merge joins the errors of the schema and of the code. If both report a field, the code's message is used, because it
// is clearer. Repeated errors of the code, and those that may follow from errors of the schema, are left out.
func merge(schema, code field.ErrorList) field.ErrorList {
	var all field.ErrorList
	for _, e := range schema {
		path := plain(e.Field)
		reported := slices.ContainsFunc(code, func(c *field.Error) bool {
			at := plain(c.Field)
			return at == path || e.Type == field.ErrorTypeDuplicate && (at == path+".type" || at == path+".name")
		})
		if !reported {
			all = append(all, e)
		}
	}
	for i, e := range code {
		twice := slices.ContainsFunc(code[:i], func(c *field.Error) bool { return c.Error() == e.Error() })
		// An error about a value may be a consequence of an error in a part of it, and an error about a part may be a
		// consequence of the missing value.
		follows := slices.ContainsFunc(schema, func(s *field.Error) bool {
			at, of := plain(s.Field), plain(e.Field)
			return at != of && (within(at, of) || s.Type == field.ErrorTypeRequired && within(of, at))
		})
		if !twice && !follows {
			all = append(all, e)
		}
	}
	return all
}

var keyInBrackets = regexp.MustCompile(`\[([^\]]*[^\]\d][^\]]*)\]`)

// plain returns a path in a canonical form: with .KEY instead of [KEY]. Indices of lists stay in brackets.
func plain(path string) string { return keyInBrackets.ReplaceAllString(path, ".$1") }

// within reports whether a path is equal to another one or lies inside it.
func within(path, whole string) bool {
	rest, ok := strings.CutPrefix(path, whole)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

func lastName(path string) string { return path[strings.LastIndexAny(path, ".]")+1:] }

func sortedNames(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

// lookUp returns the value at a path; false if there is none.
func lookUp(value any, path string) (any, bool) {
	var found any
	ok := visit(value, path, func(v any, _ func(any)) { found = v })
	return found, ok
}

// remove removes the value at a path. An item of a list becomes nil, so that the other items keep their indices. remove
// returns false if there is no value at the path.
func remove(value any, path string) bool { return replace(value, path, nil) }

// replace replaces the value at a path; nil removes it. It returns false if there is no value at the path.
func replace(value any, path string, by any) bool {
	return visit(value, path, func(_ any, put func(any)) { put(by) })
}

// visit calls f with the value at a path and with a function that replaces the value, or removes the field if it is
// called with nil. It returns false if there is no value at the path.
func visit(value any, path string, f func(v any, put func(any))) bool {
	path = strings.TrimPrefix(path, ".")
	switch holder := value.(type) {
	case []any:
		digits, rest, _ := strings.Cut(strings.TrimPrefix(path, "["), "]")
		i, err := strconv.Atoi(digits)
		if err != nil || i < 0 || i >= len(holder) {
			return false
		}
		if rest == "" {
			f(holder[i], func(by any) { holder[i] = by })
			return true
		}
		return visit(holder[i], rest, f)
	case map[string]any:
		name, rest, ok := firstStep(holder, path)
		if ok && rest == "" {
			f(holder[name], func(by any) {
				if holder[name] = by; by == nil {
					delete(holder, name)
				}
			})
			return true
		}
		return ok && visit(holder[name], rest, f)
	}
	return false
}

// firstStep returns the longest key of a mapping with which a path begins, written as .KEY or [KEY], and the rest of
// the path. Keys may contain dots.
func firstStep(holder map[string]any, path string) (name, rest string, ok bool) {
	for key := range holder {
		for _, form := range []string{key, "[" + key + "]"} {
			if after, begins := strings.CutPrefix(path, form); begins && (!ok || len(key) > len(name)) && (after == "" || after[0] == '.' || after[0] == '[') {
				name, rest, ok = key, after, true
			}
		}
	}
	return name, rest, ok
}
