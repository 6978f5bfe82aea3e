package cli

import (
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
)

// fieldManager is the name under which this program owns fields of objects.
const fieldManager = "t9k"

// cluster is a connection to one.
type cluster struct {
	config  *rest.Config
	objects dynamic.Interface
	core    corev1client.CoreV1Interface
	// namespace is the one that is meant where nothing else is said; chosen is true where it was given on the command line.
	namespace string
	chosen    bool
}

// errNoCluster says that nothing tells which cluster is meant.
var errNoCluster = errors.New("no cluster: there is no kubeconfig and no embedded cluster runs")

// connect finds the cluster and makes its clients. It sends no request.
func (a *app) connect() (*cluster, error) {
	if err := a.resolve(); err != nil {
		return nil, err
	}
	config, err := a.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	// The API server shares out its time by itself; a limit here would only slow down the logs of large jobs.
	config.QPS = -1
	config.UserAgent = fieldManager
	config.WarningHandler = rest.NewWarningWriter(a.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	c := &cluster{config: config}
	if c.namespace, c.chosen, err = a.flags.ToRawKubeConfigLoader().Namespace(); err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	c.chosen = *a.flags.Namespace != ""
	if c.objects, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	if c.core, err = corev1client.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return c, nil
}

// resolve decides which kubeconfig counts. The embedded cluster stands in where nothing else is set up.
func (a *app) resolve() error {
	a.kubeconfig = *a.flags.KubeConfig
	switch {
	case a.local != "":
		path, err := localKubeconfig(a.local)
		if err != nil {
			return err
		}
		*a.flags.KubeConfig = path
		return nil
	case a.configured():
		return nil
	}
	path, err := localKubeconfig(defaultLocal)
	if err != nil {
		return errNoCluster
	}
	*a.flags.KubeConfig = path
	fmt.Fprintf(a.ErrOut, "No kubeconfig is set up: using the embedded cluster %q.\n", defaultLocal)
	return nil
}

// configured tells whether anything but the embedded cluster was meant: flags, a kubeconfig, or the pod this runs in.
func (a *app) configured() bool {
	if *a.flags.KubeConfig != "" || *a.flags.APIServer != "" || *a.flags.Context != "" || os.Getenv("KUBERNETES_SERVICE_HOST") != "" {
		return true
	}
	// One that cannot be read is meant too: reading it again will say what is wrong with it.
	raw, err := clientcmd.NewDefaultClientConfigLoadingRules().Load()
	return err != nil || len(raw.Clusters) > 0
}

// jobs is the client of one kind of job.
func (c *cluster) jobs(kind *kinds.Kind, namespace string) dynamic.ResourceInterface {
	return c.objects.Resource(resourceOf(kind)).Namespace(namespace)
}

func resourceOf(kind *kinds.Kind) schema.GroupVersionResource {
	return batch.GroupVersion.WithResource(kind.Plural)
}

// requestTimeout bounds look-ups that only make an answer nicer.
const requestTimeout = 5 * time.Second
