package integration

import (
	"sync"
	"testing"
	"time"

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
	p, err := runOperator(env, kubeconfig, args...)
	if err != nil {
		t.Fatal(err)
	}
	p.EndWith(t)
	return p
}

// runOperator starts an operator that the caller ends.
func runOperator(env []string, kubeconfig string, args ...string) (*program.Program, error) {
	return program.Start("/proc/self/exe", append([]string{"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--namespace=t9k-system",
		"--health-probe-bind-address=0", "--metrics-bind-address=0", "--webhook-bind-address=0", "--restart-backoff=1ms", "--max-restart-backoff=10ms"}, args...),
		append(env, asOperator+"=1"))
}

// revived is an operator that is started again whenever it ends, as the kubelet of its pod does.
type revived struct {
	mu      sync.Mutex
	current *program.Program
	starts  int
}

// reviveOperator starts an operator that is revived until the test ends.
func reviveOperator(t *testing.T, kubeconfig string, args ...string) *revived {
	t.Helper()
	r := &revived{current: startOperator(t, kubeconfig, args...), starts: 1}
	every(t, 500*time.Millisecond, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.current.Running() {
			return
		}
		next, err := runOperator(nil, kubeconfig, args...)
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

// kill kills the operator that runs now.
func (r *revived) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current.Kill()
}

// every calls f again and again, with a pause in between, until the test ends or the function that it returns is called.
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
