// Package plane starts control planes for tests, with clients for them, and shares them between tests.
// testenv.Options selects the components of a control plane, and package namespace provides namespaces for tests.
// Start reading at New. Shared and Pool are the two ways to share a control plane.
package plane

import (
	"context"
	"fmt"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/testing/testenv"
	"tensorstack.dev/batch/test/kit/await"
	"tensorstack.dev/batch/test/kit/program"
)

// Plane is an API server with the components that a test needs, and clients for it.
type Plane struct {
	Env *testenv.Env
	// Client retries writes as Patient does.
	Client client.WithWatch
	// Core is a client for the resources of Kubernetes. It uses Protobuf.
	Core kubernetes.Interface

	mu   sync.Mutex
	stop []func() // called in reverse order
}

// New starts a control plane. The caller must call Stop.
func New(o testenv.Options) (*Plane, error) {
	env, err := testenv.New(o)
	if err != nil {
		return nil, err
	}
	p := &Plane{Env: env}
	if err := p.connect(); err != nil {
		p.Stop()
		return nil, fmt.Errorf("connecting to a control plane: %w", err)
	}
	return p, nil
}

// Start starts a control plane that stops when the test ends.
func Start(t testing.TB, o testenv.Options) *Plane {
	t.Helper()
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

func (p *Plane) connect() error {
	c, err := NewClient(p.Env.Config)
	if err != nil {
		return err
	}
	p.Client = Patient(c)
	compact := rest.CopyConfig(p.Env.Config)
	compact.ContentType = runtime.ContentTypeProtobuf
	p.Core, err = kubernetes.NewForConfig(compact)
	return err
}

// NewClient returns a client for the resources of Kubernetes, CustomResourceDefinitions and the resources of this
// repository.
func NewClient(config *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, batch.AddToScheme, scheduling.AddToScheme, tensorboard.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}

// OnStop makes Stop call f before it stops the control plane. Functions that were added later are called earlier.
func (p *Plane) OnStop(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop = append(p.stop, f)
}

// Launch starts a program that uses the control plane. Stop kills the program.
func (p *Plane) Launch(path string, args ...string) (*program.Program, error) {
	child, err := program.Start(path, args, nil)
	if err == nil {
		p.OnStop(child.Kill)
	}
	return child, err
}

// Stop calls the functions of OnStop and stops the control plane. It can be called several times.
func (p *Plane) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.stop {
		p.stop[len(p.stop)-1-i]()
	}
	p.stop = nil
	p.Env.Stop()
}

// AwaitReady waits until every component is ready, for example after a kill.
func (p *Plane) AwaitReady(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	if err := p.Env.AwaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}
