package integration

import (
	"os"
	"path/filepath"
	"testing"

	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/test/kit/program"
)

// electing are the settings of an operator that leads only if it is elected.
const electing = "leaderElection: {enabled: true}"

// ofTests are the settings of an operator that leads at once, restarts replicas without delay and serves nothing.
const ofTests = "{leaderElection: {enabled: false}, health: {bindAddress: '0'}, metrics: {bindAddress: '0'}, webhook: {bindAddress: '0'}, " +
	"jobs: {restartBackoff: 1ms, maxRestartBackoff: 10ms}}"

// startOperator starts an operator that leads at once, restarts replicas without delay and serves no webhook, unless
// settings, YAML texts of fields of its configuration file, change that. The operator ends with the test.
func startOperator(t testing.TB, kubeconfig string, settings ...string) *program.Program {
	t.Helper()
	return startOperatorWith(t, nil, kubeconfig, settings...)
}

// startOperatorWith starts an operator with additional environment variables.
func startOperatorWith(t testing.TB, env []string, kubeconfig string, settings ...string) *program.Program {
	t.Helper()
	text, err := local.OperatorSettings(append([]string{ofTests}, settings...)...)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "operator.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := program.Start("/proc/self/exe", []string{"--kubeconfig=" + kubeconfig, "--namespace=t9k-system", "--config=" + file}, append(env, asOperator+"=1"))
	if err != nil {
		t.Fatal(err)
	}
	p.EndWith(t)
	return p
}
