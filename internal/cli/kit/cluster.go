package kit

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/steer"
)

// FieldManager is the field manager of the objects that this program applies.
const FieldManager = "t9k"

// Cluster is a connection to a cluster.
type Cluster struct {
	Config  *rest.Config
	Objects dynamic.Interface
	Core    corev1client.CoreV1Interface
	// Namespace is the default namespace. Chosen is true if the command line names it.
	Namespace string
	Chosen    bool
	// Name is the name of the kubeconfig's context. It is the host of the API server if no context is selected, for
	// example in a pod, or if flags select another cluster or API server.
	Name string
}

// ErrNoCluster means that neither a flag nor a kubeconfig names a cluster, and that no embedded cluster runs.
var ErrNoCluster = errors.New("no cluster: there is no kubeconfig and no embedded cluster runs")

// Connect selects the cluster and creates its clients. It sends no request.
func (p *Program) Connect() (*Cluster, error) {
	if err := p.resolve(); err != nil {
		return nil, err
	}
	config, err := p.Flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	// The client-side rate limit is off, because the API server limits requests itself, and the logs of large jobs need
	// many requests.
	config.QPS = -1
	config.UserAgent = FieldManager
	config.WarningHandler = rest.NewWarningWriter(p.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	c := &Cluster{Config: config, Name: p.nameOf(config)}
	if c.Namespace, _, err = p.Flags.ToRawKubeConfigLoader().Namespace(); err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	c.Chosen = *p.Flags.Namespace != ""
	if c.Objects, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	if c.Core, err = corev1client.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return c, nil
}

// nameOf returns the value of Cluster.Name.
func (p *Program) nameOf(config *rest.Config) string {
	raw, err := p.Flags.ToRawKubeConfigLoader().RawConfig()
	name := cmp.Or(*p.Flags.Context, raw.CurrentContext)
	if err == nil && name != "" && *p.Flags.ClusterName == "" && *p.Flags.APIServer == "" {
		return name
	}
	u, err := url.Parse(config.Host)
	if err != nil || u.Host == "" {
		return config.Host
	}
	return u.Host
}

// Archive returns the address of the cluster's archive from the kubeconfig; nil if the kubeconfig has none or if
// --server selects another API server. Call Connect first.
func (p *Program) Archive() (*archive.Address, error) {
	raw, err := p.Flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	name := *p.Flags.ClusterName
	if context := raw.Contexts[cmp.Or(*p.Flags.Context, raw.CurrentContext)]; name == "" && context != nil {
		name = context.Cluster
	}
	cluster := raw.Clusters[name]
	if cluster == nil || *p.Flags.APIServer != "" {
		return nil, nil
	}
	extension, ok := cluster.Extensions[archive.KubeconfigExtension].(*runtime.Unknown)
	if !ok {
		return nil, nil
	}
	var address archive.Address
	if err := json.Unmarshal(extension.Raw, &address); err != nil {
		return nil, fmt.Errorf("reading the extension %s of the kubeconfig: %w", archive.KubeconfigExtension, err)
	}
	return &address, nil
}

// resolve selects the kubeconfig. It selects the kubeconfig of the embedded cluster if --local requests it or if no
// other cluster is configured. In the second case, it prints that it uses this cluster, or returns ErrNoCluster if the
// cluster does not run.
func (p *Program) resolve() error {
	p.kubeconfig = *p.Flags.KubeConfig
	switch {
	case p.local != "":
		path, err := localKubeconfig(p.local)
		if err != nil {
			return err
		}
		*p.Flags.KubeConfig = path
		return nil
	case p.configured():
		return nil
	}
	path, err := localKubeconfig(DefaultLocal)
	if err != nil {
		return ErrNoCluster
	}
	*p.Flags.KubeConfig = path
	fmt.Fprintf(p.ErrOut, "No kubeconfig is set up: using the embedded cluster %q.\n", DefaultLocal)
	return nil
}

// configured reports whether flags, a kubeconfig or the surrounding pod name a cluster.
func (p *Program) configured() bool {
	if *p.Flags.KubeConfig != "" || *p.Flags.APIServer != "" || *p.Flags.Context != "" || os.Getenv("KUBERNETES_SERVICE_HOST") != "" {
		return true
	}
	// A kubeconfig that cannot be read counts as configured, so that loading it later reports the error.
	raw, err := clientcmd.NewDefaultClientConfigLoadingRules().Load()
	return err != nil || len(raw.Clusters) > 0
}

// Jobs returns the client for one kind of job in a namespace. Only lists and watches accept an empty namespace, which
// means all namespaces.
func (c *Cluster) Jobs(kind *kinds.Kind, namespace string) dynamic.ResourceInterface {
	return c.Objects.Resource(batch.GroupVersion.WithResource(kind.Plural)).Namespace(namespace)
}

// Place sets the namespace of an object of a manifest to the default namespace, unless the manifest sets it. It returns
// an error if the manifest and the command line name different namespaces. ref names the object in the error. Place
// does nothing if the object is not namespaced.
func (c *Cluster) Place(u *unstructured.Unstructured, ref string, namespaced bool) error {
	switch {
	case !namespaced:
	case u.GetNamespace() == "":
		u.SetNamespace(c.Namespace)
	case c.Chosen && u.GetNamespace() != c.Namespace:
		return fmt.Errorf("the manifest puts %s into namespace %q, and -n says %q", ref, u.GetNamespace(), c.Namespace)
	}
	return nil
}

// Steer returns a client that changes jobs.
func (c *Cluster) Steer() steer.Client {
	return steer.Client{Objects: c.Objects, Manager: FieldManager}
}

// RequestTimeout is the timeout of optional requests, whose responses only make the output more complete.
const RequestTimeout = 5 * time.Second
