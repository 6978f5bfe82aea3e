// Package testenv starts a real Kubernetes API server or a whole cluster for a test or benchmark, from the programs
// in t9k-local. It does not disturb the user's clusters. Everything that it starts is stopped and removed, however
// the test ends.
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
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/require"
)

const (
	// startTimeout is long enough for a machine that runs other tests at the same time.
	startTimeout = 5 * time.Minute
	stopTimeout  = 2 * time.Minute
	// readyInterval is the time between two checks of the components. It is long enough not to slow down components
	// that are starting.
	readyInterval = 50 * time.Millisecond
	// garbage is the GOGC of the components: tests have more memory than CPU time.
	garbage = "400"
)

const (
	// ControlPlaneEnv is the environment variable with the path of a program that runs etcd, the API server and the
	// controller manager of another Kubernetes version instead of t9k-local, such as test/oldest.
	ControlPlaneEnv = "T9K_CONTROL_PLANE"
	// EmulateEnv is the environment variable with the Kubernetes version that API servers emulate, such as 1.34,
	// unless Options.Args has a version.
	EmulateEnv = "T9K_EMULATE"
)

// Options are the settings of an environment.
type Options struct {
	// Components are the components (local.Scheduler, ...) to run. Start and StartCluster have different defaults.
	Components []string
	// AuditPolicy is the YAML of an audit policy (audit.k8s.io/v1). If it is set, the API server writes Env.AuditLog.
	AuditPolicy string
	// Containerd is the socket of a containerd that runs the pods. If it is empty, pods run as processes of this
	// machine.
	Containerd string
	// Args are additional command-line arguments by component.
	Args map[string][]string
	// Settings are YAML texts with settings of the operator and the scheduler, by component, as in local.Options.
	Settings map[string][]string
	// Parent is the directory in which the environment's directory is created. The default is the directory for
	// temporary files.
	Parent string
}

// Env is a running environment.
type Env struct {
	// Config is the administrator's client configuration, without rate limits. Copy it before changing it.
	Config *rest.Config
	// Kubeconfig is the path of the administrator's kubeconfig.
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

// Start starts the components that o names; by default, an API server with its etcd and the repository's CRDs, which
// takes a few seconds and needs no privileges. Without the controller manager, no garbage is collected and deleted
// namespaces are not emptied. The environment stops when the test ends.
func Start(t testing.TB, o Options) *Env {
	t.Helper()
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Stop)
	return e
}

// StartCluster starts the components that o names; by default, a whole cluster without the console, with a node that
// runs pods as processes. If the machine cannot run pods, it skips the test with the reason. The environment stops when
// the test ends.
func StartCluster(t testing.TB, o Options) *Env {
	t.Helper()
	if err := local.CheckPodSupport(); err != nil {
		require.Missing(t, err.Error())
	}
	if len(o.Components) == 0 {
		o.Components = local.WithoutConsole()
	}
	return Start(t, o)
}

// New does the same as Start without a test, for example in TestMain. The caller must call Stop. The environment stops
// at the latest when the process exits.
func New(o Options) (*Env, error) {
	if len(o.Components) == 0 {
		o.Components = []string{local.Etcd, local.APIServer, local.CRDs}
	}
	binary, err := Binary()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(o.Parent, "t9k-env-")
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
	settings := local.Options{Components: o.Components, ExtraArgs: withVersion(o.Args), Settings: o.Settings, Programs: controlPlane()}
	if o.Containerd != "" {
		settings.Runtime, settings.ContainerdSocket = local.RuntimeContainerd, o.Containerd
	}
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

// withVersion adds the version of EmulateEnv to the arguments of the API server, unless they already contain a version.
func withVersion(args map[string][]string) map[string][]string {
	const flag = "--emulated-version="
	version := os.Getenv(EmulateEnv)
	if version == "" || slices.ContainsFunc(args[local.APIServer], func(a string) bool { return strings.HasPrefix(a, flag) }) {
		return args
	}
	all := maps.Clone(args)
	if all == nil {
		all = map[string][]string{}
	}
	all[local.APIServer] = append([]string{flag + version}, all[local.APIServer]...)
	return all
}

// controlPlane returns, by component, the program that ControlPlaneEnv names. The map is empty if the variable is
// unset.
func controlPlane() map[string]string {
	programs := map[string]string{}
	if path := os.Getenv(ControlPlaneEnv); path != "" {
		for _, component := range []string{local.Etcd, local.APIServer, local.ControllerManager} {
			programs[component] = path
		}
	}
	return programs
}

// Up starts the environment again on its data after Down or KillMachine. It returns when every component is ready. It
// returns an error if the machine process ends first, or after five minutes.
func (e *Env) Up() error {
	if err := e.launch(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return e.AwaitReady(ctx)
}

// Down stops the environment as `t9k local down` does and keeps its data. Pods have the time grace to terminate.
func (e *Env) Down(grace time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), grace+stopTimeout)
	defer cancel()
	if err := e.client.Stop(ctx, grace); err != nil {
		return err
	}
	return e.awaitEnd(ctx)
}

// KillMachine kills the machine process with SIGKILL and waits for its end. Every component dies with it, but pods may
// go on running.
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

// launch starts the machine process. The machine process stops, and removes the directory, when this process closes the
// other end of its standard input, which also happens when this process is killed.
func (e *Env) launch() error {
	e.output.Reset()
	e.machine = exec.Command(e.binary, "machine", "--ephemeral", "--dir", e.Dir)
	e.machine.Env = append(os.Environ(), "GOGC="+garbage)
	e.machine.Stdout, e.machine.Stderr = &e.output, &e.output
	e.machine.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C in the terminal must reach only the test
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
		_ = machine.Wait() // requests fail once the process has exited, and its output contains the reason
	}()
	return nil
}

// AwaitReady waits until every component is ready, for example after a kill or restart. If ctx ends first, the error
// names the components that are not ready. If the machine process ends first, the error contains its output.
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
			return errors.Join(ctx.Err(), err, e.notReady(status))
		case <-time.After(readyInterval):
		}
	}
}

// notReady returns an error that names the components that are not ready, with the ends of their logs.
func (e *Env) notReady(s *local.Status) error {
	const end = 2000 // bytes
	var errs []error
	for _, c := range s.Components {
		if c.State != local.StateReady {
			log, err := os.ReadFile(e.LogFile(c.Name))
			errs = append(errs, fmt.Errorf("%s: %s (%d restarts): %s\n%s", c.Name, c.State, c.Restarts, c.Message, log[max(0, len(log)-end):]), err)
		}
	}
	return errors.Join(errs...)
}

// Kill kills a component with SIGKILL. The supervisor restarts it; AwaitReady waits for that.
func (e *Env) Kill(component string) error {
	return e.request((*local.Client).KillComponent, component)
}

// StopComponent stops a component and keeps it stopped until StartComponent.
func (e *Env) StopComponent(component string) error {
	return e.request((*local.Client).StopComponent, component)
}

// StartComponent starts a component that StopComponent stopped. AwaitReady waits until it is ready.
func (e *Env) StartComponent(component string) error {
	return e.request((*local.Client).StartComponent, component)
}

func (e *Env) request(do func(*local.Client, context.Context, string) error, component string) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return do(e.client, ctx, component)
}

// Status returns the status of the components.
func (e *Env) Status() (*local.Status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return e.client.Status(ctx)
}

// LogFile returns the path of a component's log.
func (e *Env) LogFile(component string) string { return e.dir.LogFile(component) }

// Stop stops everything and removes the directory. It can be called several times.
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
	// KillMachine leaves pods behind, and Down leaves the data.
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if _, err := local.Remove(ctx, e.dir, 0, func(local.ShutdownStatus) {}); err != nil {
		fmt.Fprintln(os.Stderr, "removing a test environment:", err)
	}
	os.RemoveAll(e.Dir)
}
