package main

import (
	"math"
	"strings"

	"go.yaml.in/yaml/v3"
)

// quantity is the pattern of a quantity that every reader can take. The generated one allows exponents of any size and with
// fractions: a quantity of 1e1.5 cannot be read, and one of 1e-9999999 keeps its reader busy for ever.
const quantity = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,2}))?$`

// mostResources is how many entries a list of resources may have that rules in CEL look at: their cost must be bounded, and
// the Go type has no place for this bound.
const mostResources = 64

// fit bounds everything that may be a number or a string to what the Go types hold. The API server checks the format of
// plain integers, and not these; a single stored object that cannot be read would keep a controller from reading any.
func fit(n *yaml.Node) {
	if flag := value(n, "x-kubernetes-int-or-string"); flag != nil && flag.Value == "true" {
		if pattern := value(n, "pattern"); pattern != nil && strings.Contains(pattern.Value, "KMGTPE") {
			set(n, "pattern", quantity)
			set(n, "maxLength", 64)
		} else {
			set(n, "minimum", math.MinInt32)
			set(n, "maximum", math.MaxInt32)
		}
	}
	if value(n, "x-kubernetes-validations") != nil && value(n, "additionalProperties", "x-kubernetes-int-or-string") != nil {
		set(n, "maxProperties", mostResources)
	}
	for _, child := range n.Content {
		fit(child)
	}
}
