package integration

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/test/kit/program"
)

// electing is the setting that turns on leader election.
const electing = "leaderElection: {enabled: true}"

// ofTests holds the settings of an operator that leads at once, restarts replicas after at most 10 ms and serves
// nothing.
const ofTests = "{leaderElection: {enabled: false}, health: {bindAddress: '0'}, metrics: {bindAddress: '0'}, webhook: {bindAddress: '0'}, " +
	"jobs: {restartBackoff: 1ms, maxRestartBackoff: 10ms}}"

// startOperator starts an operator with ofTests. settings are YAML texts with fields of its configuration file, which
// override these settings. The operator is killed when the test ends.
func startOperator(t testing.TB, kubeconfig string, settings ...string) *program.Program {
	t.Helper()
	return startOperatorWith(t, nil, kubeconfig, settings...)
}

// startOperatorWith starts an operator with additional environment variables.
func startOperatorWith(t testing.TB, env []string, kubeconfig string, settings ...string) *program.Program {
	t.Helper()
	p, err := runOperator(env, kubeconfig, operatorSettings(t, settings...))
	if err != nil {
		t.Fatal(err)
	}
	p.EndWith(t)
	return p
}

// operatorSettings returns the path of a configuration file with settings in addition to ofTests.
func operatorSettings(t testing.TB, settings ...string) string {
	t.Helper()
	text, err := local.OperatorSettings(append([]string{ofTests}, settings...)...)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "operator.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// runOperator starts an operator with the configuration file at settings. The caller kills it.
func runOperator(env []string, kubeconfig, settings string) (*program.Program, error) {
	return program.Start("/proc/self/exe", []string{"--kubeconfig=" + kubeconfig, "--namespace=t9k-system", "--config=" + settings}, append(env, asOperator+"=1"))
}

// revived is an operator that is restarted whenever it exits, as a kubelet restarts its container.
type revived struct {
	mu      sync.Mutex
	current *program.Program
	starts  int
}

// reviveOperator starts an operator that is restarted whenever it exits, until the test ends.
func reviveOperator(t *testing.T, kubeconfig string, settings ...string) *revived {
	t.Helper()
	r := &revived{current: startOperator(t, kubeconfig, settings...), starts: 1}
	file := operatorSettings(t, settings...)
	every(t, 500*time.Millisecond, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.current.Running() {
			return
		}
		next, err := runOperator(nil, kubeconfig, file)
		if err != nil {
			t.Error(err)
			return
		}
		next.EndWith(t)
		r.current, r.starts = next, r.starts+1
	})
	t.Cleanup(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		t.Logf("the operator was started %d times", r.starts)
	})
	return r
}

// kill kills the running operator.
func (r *revived) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current.Kill()
}

// every calls f repeatedly, with a pause before each call, until the test ends or stop is called. stop waits until
// the last call has returned.
func every(t *testing.T, pause time.Duration, f func()) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			case <-time.After(pause):
				f()
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		close(quit)
		<-done
	})
	t.Cleanup(stop)
	return stop
}
