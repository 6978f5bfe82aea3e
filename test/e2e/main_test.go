package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/require"
	"tensorstack.dev/batch/internal/testing/testenv"
)

// sideBySide is the number of tests that run at once. They wait most of their time, but with more of them two cores take seconds
// to start a pod.
const sideBySide = "8"

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "test.parallel" })
	if !set {
		if err := flag.Set("test.parallel", sideBySide); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	code := m.Run()
	stopShared()
	os.Exit(code)
}

// cluster is an embedded cluster and the means to talk to it.
type cluster struct {
	env    *testenv.Env
	config *rest.Config
	client client.WithWatch
	core   kubernetes.Interface
}

// restartBackoff is the base of the delay between restarts on the clusters of the tests, in place of 10 s.
const restartBackoff = "1s"

// stopShared ends the shared cluster if it was started.
var stopShared = func() {}

// shared is the cluster that most tests use, started when the first one asks for it.
var shared = sync.OnceValues(func() (*cluster, error) {
	c, err := newCluster(testenv.Options{})
	if err == nil {
		stopShared = c.env.Stop
	}
	return c, err
})

// newCluster starts a cluster. Options.Args may add to the components' arguments.
func newCluster(o testenv.Options) (*cluster, error) {
	o.Components = local.AllComponents()
	args := map[string][]string{}
	for name, more := range o.Args {
		args[name] = more
	}
	args[local.Operator] = append([]string{"--restart-backoff=" + restartBackoff}, args[local.Operator]...)
	o.Args = args
	env, err := testenv.New(o)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, batch.AddToScheme, scheduling.AddToScheme, tensorboard.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	c := &cluster{env: env, config: env.Config}
	if c.client, err = client.NewWithWatch(env.Config, client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	c.core, err = kubernetes.NewForConfig(env.Config)
	return c, err
}

// requireCluster ends the test where this machine cannot run pods.
func requireCluster(t testing.TB) {
	t.Helper()
	if err := local.CheckPodSupport(); err != nil {
		require.Missing(t, err.Error())
	}
}

// ownCluster starts a cluster for a test that breaks parts of it.
func ownCluster(t testing.TB, o testenv.Options) *cluster {
	t.Helper()
	requireCluster(t)
	c, err := newCluster(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.env.Stop)
	return c
}

// awaitComponents waits until every component of the cluster is ready.
func (c *cluster) awaitComponents(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.env.AwaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}
