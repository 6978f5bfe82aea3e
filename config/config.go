// Package config carries the generated CustomResourceDefinitions, so that programs can install and check them.
package config

import "embed"

// CRDs holds the CustomResourceDefinitions as YAML files under crd/.
//
//go:embed crd/*.yaml
var CRDs embed.FS
