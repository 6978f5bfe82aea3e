package manifest

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// codeCheck lists what only code can tell of an object; the error says that the object cannot be read at all.
type codeCheck func(*unstructured.Unstructured) (field.ErrorList, error)

// check looks at an object in which the schema has found errors already. Values that cannot be read are left out, so that
// one look tells everything; but where others depend on such a value, nothing true can be said of them.
func (check codeCheck) check(u *unstructured.Unstructured, known field.ErrorList) field.ErrorList {
	if check == nil {
		return nil
	}
	for _, unreadable := range []func(*field.Error) bool{isOfWrongType, cannotBeRead} {
		rest := u.DeepCopy()
		var left []string
		for _, e := range known {
			if unreadable(e) && remove(rest.Object, e.Field) {
				left = append(left, plain(e.Field))
			}
		}
		if slices.ContainsFunc(left, othersDependOn) {
			return nil
		}
		errs, err := check(rest)
		if err == nil {
			return slices.DeleteFunc(errs, func(e *field.Error) bool {
				return slices.ContainsFunc(left, func(l string) bool { return within(plain(e.Field), l) || within(l, plain(e.Field)) })
			})
		}
		if len(known) == 0 {
			return field.ErrorList{field.Invalid(nil, field.OmitValueType{}, err.Error())}
		}
	}
	return nil
}

func isOfWrongType(e *field.Error) bool { return e.Type == field.ErrorTypeTypeInvalid }

func cannotBeRead(e *field.Error) bool {
	return isOfWrongType(e) || strings.Contains(e.Detail, quantityPattern)
}

// leaves are the fields that no other one refers to or counts.
var leaves = []string{"limit", "cleanUpPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit", "maxRestarts",
	"priority", "image", "value", "hostPort", "containerPort", "protocol", "imagePullPolicy", "workingDir", "tty", "stdin",
	"command", "args", "suspend", "terminationGracePeriodSeconds", "nodeSelector", "tolerations", "labels", "annotations"}

func othersDependOn(path string) bool {
	steps := strings.Split(path, ".")
	return !slices.ContainsFunc(steps, func(step string) bool {
		return step == "requests" || step == "limits" || slices.Contains(leaves, strings.SplitN(step, "[", 2)[0])
	})
}

// merge joins what the schema and what the code find. Of one field the code has the better words.
func merge(schema, code field.ErrorList) field.ErrorList {
	var all field.ErrorList
	for _, e := range schema {
		path := plain(e.Field)
		told := slices.ContainsFunc(code, func(c *field.Error) bool {
			at := plain(c.Field)
			return at == path || e.Type == field.ErrorTypeDuplicate && (at == path+".type" || at == path+".name")
		})
		if !told {
			all = append(all, e)
		}
	}
	for i, e := range code {
		twice := slices.ContainsFunc(code[:i], func(c *field.Error) bool { return c.Error() == e.Error() })
		// What is said of the whole may follow from what is wrong with a part of it.
		follows := slices.ContainsFunc(schema, func(s *field.Error) bool {
			return plain(s.Field) != plain(e.Field) && within(plain(s.Field), plain(e.Field))
		})
		if !twice && !follows {
			all = append(all, e)
		}
	}
	return all
}

var keyInBrackets = regexp.MustCompile(`\[([^\]]*[^\]\d][^\]]*)\]`)

// plain writes a path in one of the ways in which the same field is named: with .KEY for [KEY].
func plain(path string) string { return keyInBrackets.ReplaceAllString(path, ".$1") }

// within tells whether a path leads to a part of what another one leads to.
func within(path, whole string) bool {
	rest, ok := strings.CutPrefix(path, whole)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

func lastName(path string) string { return path[strings.LastIndexAny(path, ".]")+1:] }

func sortedNames(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

// lookUp finds the value at a path.
func lookUp(value any, path string) (any, bool) {
	var found any
	ok := visit(value, path, func(v any, _ func()) { found = v })
	return found, ok
}

// remove takes the value at a path out. An item of a list becomes nil, so that the others keep their places.
func remove(value any, path string) bool {
	return visit(value, path, func(_ any, remove func()) { remove() })
}

// visit calls f with the value at a path and the means to take it out, unless there is none.
func visit(value any, path string, f func(v any, remove func())) bool {
	path = strings.TrimPrefix(path, ".")
	switch holder := value.(type) {
	case []any:
		digits, rest, _ := strings.Cut(strings.TrimPrefix(path, "["), "]")
		i, err := strconv.Atoi(digits)
		if err != nil || i < 0 || i >= len(holder) {
			return false
		}
		if rest == "" {
			f(holder[i], func() { holder[i] = nil })
			return true
		}
		return visit(holder[i], rest, f)
	case map[string]any:
		name, rest, ok := firstStep(holder, path)
		if ok && rest == "" {
			f(holder[name], func() { delete(holder, name) })
			return true
		}
		return ok && visit(holder[name], rest, f)
	}
	return false
}

// firstStep finds the longest key with which a path begins, written as .KEY or [KEY]; keys may hold dots.
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
