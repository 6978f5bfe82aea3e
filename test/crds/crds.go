// Package crds imports a small package of each module whose CustomResourceDefinitions the tests of the chart install,
// so that `go mod` keeps the module. It is a separate module, so that its dependencies do not affect ours.
package crds

import (
	_ "github.com/cert-manager/cert-manager/pkg/apis/certmanager"          // deploy/crds
	_ "github.com/prometheus-operator/prometheus-operator/pkg/versionutil" // example/prometheus-operator-crd
)
