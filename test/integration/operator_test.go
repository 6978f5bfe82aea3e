package integration

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// program is an operator that runs as a process of its own.
type program struct {
	cmd *exec.Cmd
	log *logBuffer
	// ended is closed when the process has ended, by whatever cause.
	ended chan struct{}
}

// logBuffer is a buffer that can be read while it is written.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// startOperator starts an operator that leads at once, restarts replicas without delay and serves no webhook, unless args
// say otherwise. It ends with the test.
func startOperator(t *testing.T, kubeconfig string, args ...string) *program {
	t.Helper()
	p := &program{log: &logBuffer{}, ended: make(chan struct{})}
	p.cmd = exec.Command("/proc/self/exe", append([]string{"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--namespace=t9k-system",
		"--health-probe-bind-address=0", "--webhook-bind-address=0", "--restart-backoff=1ms", "--max-restart-backoff=10ms"}, args...)...)
	p.cmd.Env = append(os.Environ(), asOperator+"=1")
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // a killed process has no good end; what matters is in the log
	}()
	t.Cleanup(func() {
		p.kill()
		if text := p.log.String(); strings.Contains(text, "panic") {
			t.Errorf("the operator panicked:\n%s", text)
		} else if t.Failed() {
			t.Logf("the operator's log ends with:\n%s", text[max(0, len(text)-4000):])
		}
	})
	return p
}

// kill ends the process by SIGKILL and waits until it has ended.
func (p *program) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

func (p *program) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) } // fails where the process has ended

// running tells whether the process has not ended.
func (p *program) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}
