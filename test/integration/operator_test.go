package integration

import (
	"testing"

	"tensorstack.dev/batch/test/kit/program"
)

// startOperator starts an operator that leads at once, restarts replicas without delay and serves no webhook, unless
// args change that. The operator ends with the test.
func startOperator(t testing.TB, kubeconfig string, args ...string) *program.Program {
	t.Helper()
	return startOperatorWith(t, nil, kubeconfig, args...)
}

// startOperatorWith starts an operator with additional environment variables.
func startOperatorWith(t testing.TB, env []string, kubeconfig string, args ...string) *program.Program {
	t.Helper()
	p, err := program.Start("/proc/self/exe", append([]string{"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--namespace=t9k-system",
		"--health-probe-bind-address=0", "--metrics-bind-address=0", "--webhook-bind-address=0", "--restart-backoff=1ms", "--max-restart-backoff=10ms"}, args...),
		append(env, asOperator+"=1"))
	if err != nil {
		t.Fatal(err)
	}
	p.EndWith(t)
	return p
}
