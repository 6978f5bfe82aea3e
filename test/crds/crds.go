// Package crds imports a small package of each module whose CustomResourceDefinitions the tests of the chart install,
// so that `go mod tidy` keeps the module. It belongs to a separate module, so that its dependencies do not affect
// those of this project's module.
package crds

import (
	_ "github.com/cert-manager/cert-manager/pkg/apis/certmanager"          // CRDs in deploy/crds
	_ "github.com/prometheus-operator/prometheus-operator/pkg/versionutil" // CRDs in example/prometheus-operator-crd
)
