package scheduler

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	nodestages "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	podstages "sigs.k8s.io/kwok/kustomize/stage/pod/fast"

	"tensorstack.dev/batch/internal/testing/kwok"
	"tensorstack.dev/batch/test/kit/plane"
)

// parallelTests is the number of tests that run at the same time. It exceeds the number of processors, because the
// tests mostly wait.
const parallelTests = 8

// kwokPart is the first argument that makes this program run KWOK.
const kwokPart = "kwok"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == kwokPart {
		os.Args = os.Args[1:]
		if err := kwok.Run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	plane.Main(m, parallelTests, shared, quiet, rules)
}

// labelSimulated is the label of the nodes that KWOK manages. Pods run there as soon as they are bound, and disappear
// when they are deleted.
const labelSimulated = "simulated"

const kwokSettings = `apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  manageNodesWithLabelSelector: ` + labelSimulated + `
  podPlayStageParallelism: 8
  nodePlayStageParallelism: 2
  podsOnNodeSyncParallelism: 1
`

// startKWOK starts KWOK, which simulates the kubelets of the nodes with the label labelSimulated.
func startKWOK(p *plane.Plane) error {
	file := filepath.Join(p.Env.Dir, "kwok.yaml")
	documents := []string{kwokSettings, nodestages.DefaultNodeInit, podstages.DefaultPodReady, podstages.DefaultPodDelete}
	if err := os.WriteFile(file, []byte(strings.Join(documents, "\n---\n")), 0o600); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	_, err = p.Launch(self, kwokPart, "--kubeconfig", p.Env.Kubeconfig, "--config", file, "--v=WARN")
	return err
}
