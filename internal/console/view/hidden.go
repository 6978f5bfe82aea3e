package view

import (
	"fmt"
	"slices"
	"strings"
)

// Hidden describes objects that the user may not list.
type Hidden struct {
	// What is the name of the hidden objects in the plural, for example "pods" or "pods of namespace red".
	What string
	// Within is the namespace of t9k ui, if the page shows only the objects in this namespace; empty otherwise.
	Within string
	// Others is true if the page shows only the objects in the namespaces in which the user may list them.
	Others bool `json:",omitempty"`
}

// HiddenNotes returns sentences that tell the user what is hidden. Objects that are hidden for the same reason share a
// sentence.
func HiddenNotes(all []Hidden) []string {
	what := map[Hidden][]string{}
	var order []Hidden
	for _, h := range all {
		way := h
		way.What = ""
		if what[way] == nil {
			order = append(order, way)
		}
		if !slices.Contains(what[way], h.What) {
			what[way] = append(what[way], h.What)
		}
	}
	notes := make([]string, 0, len(order))
	for _, way := range order {
		notes = append(notes, way.note(enumeration(what[way])))
	}
	return notes
}

func (h Hidden) note(what string) string {
	switch {
	case h.Within != "":
		return fmt.Sprintf("You may not list %s of all namespaces: only namespace %s is shown. t9k ui -n NAMESPACE shows another one.", what, h.Within)
	case h.Others:
		return fmt.Sprintf("You may not list %s of all namespaces: only namespaces in which you may are shown.", what)
	}
	return fmt.Sprintf("You may not list %s.", what)
}

// enumeration joins words as text, such as "a, b and c".
func enumeration(words []string) string {
	last := len(words) - 1
	if last <= 0 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}
