package crd

import (
	"math"
	"strings"

	"go.yaml.in/yaml/v3"
)

// quantity is the pattern of a quantity that every client can parse. The generated pattern allows fractional and
// arbitrarily large exponents: clients cannot parse 1e1.5, and parsing 1e-9999999 never ends.
const quantity = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,2}))?$`

// maxResources is the largest number of entries in a list of resources that CEL rules read. The rules' cost must be
// bounded, and the Go type cannot express this bound.
const maxResources = 64

// fit limits every value that may be a number or a string to the range of the Go types. The API server checks the
// format of integers but not of these values, and one stored object that cannot be decoded would keep a controller from
// reading any object. fit also limits lists of resources with rules of their own to maxResources entries.
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
		set(n, "maxProperties", maxResources)
	}
	for _, child := range n.Content {
		fit(child)
	}
}
