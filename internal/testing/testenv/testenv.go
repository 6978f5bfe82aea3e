// Package testenv gives tests and benchmarks a real Kubernetes API server of their own, or a whole cluster, made of
// the programs in t9k-local. It disturbs no cluster that the user runs, and whatever becomes of the test, everything
// that it started ends and is removed.
//
//	func TestSomething(t *testing.T) {
//		env := testenv.Start(t, testenv.Options{})
//		c, err := client.New(env.Config, client.Options{})
package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"tensorstack.dev/batch/internal/local"
)

const (
	// startTimeout allows for a machine that is busy with other tests.
	startTimeout = 5 * time.Minute
	stopTimeout  = 30 * time.Second
	// garbage is how much of it the components may keep, in per cent of what they use: tests have more memory than processor time.
	garbage = "400"
)

// Options say what an environment consists of.
type Options struct {
	// Components are the programs (local.Scheduler, ...) that run; by default those that Start or StartCluster name.
	Components []string
	// AuditPolicy is the YAML of an audit policy (audit.k8s.io/v1); with it the API server writes Env.AuditLog.
	AuditPolicy string
	// Args are further arguments by component.
	Args map[string][]string
}

// Env is a running environment.
type Env struct {
	// Config reaches the API server as an administrator, without a limit of requests. Copy it before changing it.
	Config *rest.Config
	// Kubeconfig is the path of a file that says the same.
	Kubeconfig string
	// Dir is the environment's directory; Stop removes it.
	Dir string
	// AuditLog is the path of the audit log, one JSON event per line; it exists if there is an audit policy.
	AuditLog string

	dir     local.Dir
	client  *local.Client
	machine *exec.Cmd
	output  bytes.Buffer
	input   io.Closer
	ended   chan struct{} // closed when the machine process has ended
	binary  string
}

// Start starts an API server with its etcd and the repository's CRDs, and whatever else o.Components names; it takes
// a few seconds and no privileges. There is no controller manager unless asked for: nothing is collected as garbage,
// and namespaces are not emptied. The environment ends with the test.
func Start(t testing.TB, o Options) *Env {
	t.Helper()
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Stop)
	return e
}

// StartCluster starts a whole cluster with a node that runs pods as processes. It skips the test, and says
// why, where that is not possible. The environment ends with the test.
func StartCluster(t testing.TB, o Options) *Env {
	t.Helper()
	if err := local.CheckPodSupport(); err != nil {
		t.Skip(err)
	}
	if len(o.Components) == 0 {
		o.Components = local.AllComponents()
	}
	return Start(t, o)
}

// New is Start for where there is no test, as in TestMain; the caller must call Stop. The environment ends with the
// process at the latest.
func New(o Options) (*Env, error) {
	if len(o.Components) == 0 {
		o.Components = []string{local.Etcd, local.APIServer, local.CRDs}
	}
	binary, err := Binary()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "t9k-env-")
	if err != nil {
		return nil, err
	}
	e := &Env{Dir: dir, dir: local.Dir(dir), binary: binary}
	e.Kubeconfig, e.AuditLog = e.dir.Kubeconfig(), e.dir.AuditLog()
	if err := e.start(o); err != nil {
		e.Stop()
		return nil, fmt.Errorf("starting a test environment: %w", err)
	}
	return e, nil
}

func (e *Env) start(o Options) error {
	settings := local.Options{Components: o.Components, ExtraArgs: o.Args}
	if o.AuditPolicy != "" {
		settings.AuditPolicy = filepath.Join(e.Dir, "audit-policy.yaml")
		if err := os.WriteFile(settings.AuditPolicy, []byte(o.AuditPolicy), 0o600); err != nil {
			return err
		}
	}
	if _, err := e.dir.Configure(settings); err != nil {
		return err
	}
	e.client = local.NewClient(e.dir)
	if err := e.Up(); err != nil {
		return err
	}
	var err error
	if e.Config, err = clientcmd.BuildConfigFromFlags("", e.Kubeconfig); err != nil {
		return err
	}
	e.Config.QPS = -1
	return nil
}

// Up starts the environment again on its data, after Down or KillMachine, and returns when every component is ready.
func (e *Env) Up() error {
	if err := e.launch(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return e.AwaitReady(ctx)
}

// Down ends the environment as `t9k local down` does, and keeps its data. Pods have at most grace to end.
func (e *Env) Down(grace time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), grace+stopTimeout)
	defer cancel()
	if err := e.client.Stop(ctx, grace); err != nil {
		return err
	}
	return e.awaitEnd(ctx)
}

// KillMachine ends the machine process by SIGKILL, and every component with it.
func (e *Env) KillMachine() error {
	if err := e.machine.Process.Kill(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return e.awaitEnd(ctx)
}

func (e *Env) awaitEnd(ctx context.Context) error {
	select {
	case <-e.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the end of the machine process: %w", ctx.Err())
	}
}

// launch starts the machine process. It ends, and removes the directory, as soon as this process no longer holds the
// other end of its standard input.
func (e *Env) launch() error {
	e.output.Reset()
	e.machine = exec.Command(e.binary, "machine", "--ephemeral", "--dir", e.Dir)
	e.machine.Env = append(os.Environ(), "GOGC="+garbage)
	e.machine.Stdout, e.machine.Stderr = &e.output, &e.output
	e.machine.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // the terminal's Ctrl-C is for the test
	input, err := e.machine.StdinPipe()
	if err != nil {
		return err
	}
	if err := e.machine.Start(); err != nil {
		return err
	}
	machine, ended := e.machine, make(chan struct{})
	e.input, e.ended = input, ended
	go func() {
		defer close(ended)
		_ = machine.Wait() // its end is seen by what no longer answers; its output tells the reason
	}()
	return nil
}

// AwaitReady waits until every component is ready, those that were killed or started again included. It fails with
// what is missing when ctx ends, or when the environment died.
func (e *Env) AwaitReady(ctx context.Context) error {
	for {
		status, err := e.client.Status(ctx)
		if err == nil && status.Ready() {
			return nil
		}
		select {
		case <-e.ended:
			return fmt.Errorf("the machine process has ended: %s", bytes.TrimSpace(e.output.Bytes()))
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err, notReady(status))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func notReady(s *local.Status) error {
	var errs []error
	for _, c := range s.Components {
		if c.State != local.StateReady {
			errs = append(errs, fmt.Errorf("%s: %s (%d restarts): %s", c.Name, c.State, c.Restarts, c.Message))
		}
	}
	return errors.Join(errs...)
}

// Kill ends a component by SIGKILL. It is started again at once; AwaitReady waits for that.
func (e *Env) Kill(component string) error {
	return e.request((*local.Client).KillComponent, component)
}

// StopComponent ends a component and holds it down until StartComponent.
func (e *Env) StopComponent(component string) error {
	return e.request((*local.Client).StopComponent, component)
}

// StartComponent starts a component again that StopComponent ended; AwaitReady waits until it serves.
func (e *Env) StartComponent(component string) error {
	return e.request((*local.Client).StartComponent, component)
}

func (e *Env) request(do func(*local.Client, context.Context, string) error, component string) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return do(e.client, ctx, component)
}

// Status tells how each component is.
func (e *Env) Status() (*local.Status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return e.client.Status(ctx)
}

// LogFile is the path of a component's log.
func (e *Env) LogFile(component string) string { return e.dir.LogFile(component) }

// Stop ends everything and removes the directory. It may be called more than once.
func (e *Env) Stop() {
	if e.input != nil {
		e.input.Close()
		select {
		case <-e.ended:
		case <-time.After(stopTimeout):
			_ = e.machine.Process.Kill() // its children die with it
			<-e.ended
		}
	}
	// A machine process that was killed has left its pods, and one that went down its data.
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if _, err := local.Remove(ctx, e.dir, 0, func(local.ShutdownStatus) {}); err != nil {
		fmt.Fprintln(os.Stderr, "removing a test environment:", err)
	}
	os.RemoveAll(e.Dir)
}
