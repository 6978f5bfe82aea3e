// Package crds names the modules whose CustomResourceDefinitions the tests of the chart install, each by a small package of
// it. It has no code. The module is apart, so that their dependencies meet those of nobody else.
package crds

import (
	_ "github.com/cert-manager/cert-manager/pkg/apis/certmanager"          // deploy/crds
	_ "github.com/prometheus-operator/prometheus-operator/pkg/versionutil" // example/prometheus-operator-crd
)
