package scheduler

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/testenv"
)

// plane is an API server with whatever else a test needs, and the means to talk to it.
type plane struct {
	env    *testenv.Env
	client client.Client
	core   kubernetes.Interface

	mu        sync.Mutex
	processes []*process
}

func newPlane(o testenv.Options) (*plane, error) {
	env, err := testenv.New(o)
	if err != nil {
		return nil, err
	}
	p := &plane{env: env}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, batch.AddToScheme, scheduling.AddToScheme} {
		if err == nil {
			err = add(scheme)
		}
	}
	if err == nil {
		p.client, err = client.New(env.Config, client.Options{Scheme: scheme})
	}
	if err == nil {
		p.core, err = kubernetes.NewForConfig(env.Config)
	}
	if err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *plane) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, child := range p.processes {
		child.kill()
	}
	p.env.Stop()
}

// Settings of the shared plane's scheduler.
const (
	topologyLabel = "zone"
	sharedGrace   = "2s"
)

// stopShared ends the shared plane, if it was started.
var stopShared = func() {}

// shared is the plane that most tests use, started when the first one asks for it.
var shared = sync.OnceValues(func() (*plane, error) {
	p, err := newPlane(testenv.Options{Components: withScheduler, Args: map[string][]string{
		local.Scheduler: {"--topology-label=" + topologyLabel, "--gang-grace-period=" + sharedGrace}}})
	if err != nil {
		return nil, err
	}
	stopShared = p.stop
	return p, p.startKWOK()
})

var withScheduler = []string{local.Etcd, local.APIServer, local.CRDs, local.Scheduler}

// ownPlanes bounds how many planes there are at once besides the shared one.
var ownPlanes = make(chan struct{}, 2)

// newStage starts a plane for a test that breaks it, or needs settings of its own for the scheduler.
func newStage(t *testing.T, args ...string) *stage {
	t.Helper()
	return newStageOf(t, testenv.Options{Components: withScheduler, Args: map[string][]string{local.Scheduler: args}})
}

func newStageOf(t *testing.T, o testenv.Options) *stage {
	t.Helper()
	ownPlanes <- struct{}{}
	t.Cleanup(func() { <-ownPlanes })
	p, err := newPlane(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	s := &stage{T: t, plane: p, namespace: metav1.NamespaceDefault}
	t.Cleanup(s.showLog)
	return s
}

// showLog shows the end of the scheduler's log if the test has failed.
func (s *stage) showLog() {
	if !s.Failed() {
		return
	}
	const most = 4000
	if text, err := os.ReadFile(s.env.LogFile(local.Scheduler)); err == nil {
		s.Logf("the scheduler's log ends with:\n%s", text[max(0, len(text)-most):])
	}
}

// sharedStage is a place on the shared plane: nodes, queues and namespace are the test's own.
func sharedStage(t *testing.T) *stage {
	t.Helper()
	t.Parallel()
	p, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return p.part(t)
}

// quiet is a plane for tests that run alone on it, one after the other.
var quiet = sync.OnceValues(func() (*plane, error) {
	p, err := newPlane(testenv.Options{Components: withScheduler})
	if err == nil {
		stopQuiet = p.stop
	}
	return p, err
})

var (
	stopQuiet = func() {}
	quietTest sync.Mutex
)

// quietStage is a plane on which no other test does anything meanwhile, so that nothing but what the test does wakes the scheduler,
// and the test may kill it.
func quietStage(t *testing.T) *stage {
	t.Helper()
	t.Parallel()
	quietTest.Lock()
	t.Cleanup(quietTest.Unlock)
	p, err := quiet()
	if err != nil {
		t.Fatal(err)
	}
	return p.part(t)
}

// part is a place on a plane where nothing meets what is in other ones.
func (p *plane) part(t *testing.T) *stage {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-", ",", "").Replace(t.Name()))
	s := &stage{T: t, plane: p, namespace: name, prefix: name + "-"}
	t.Cleanup(s.showLog)
	s.must(s.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	t.Cleanup(func() { // so that the scheduler has less to look at; the test's own context has ended
		ctx, now := context.Background(), client.GracePeriodSeconds(0)
		for _, o := range []client.Object{&corev1.Pod{}, &scheduling.PodGroup{}} {
			if err := p.client.DeleteAllOf(ctx, o, client.InNamespace(name), now); err != nil {
				t.Error(err)
			}
		}
		if err := p.client.DeleteAllOf(ctx, &corev1.Node{}, client.MatchingLabels{labelStage: name}); err != nil {
			t.Error(err)
		}
	})
	return s
}

// labelStage is on the nodes of a stage of the shared plane.
const labelStage = "stage"

// own is the name of something that is not in a namespace.
func (s *stage) own(name string) string { return s.prefix + name }

// nodeSelector chooses the nodes of the stage.
func (s *stage) nodeSelector() *metav1.LabelSelector {
	if s.prefix == "" {
		return nil
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{labelStage: s.namespace}}
}
