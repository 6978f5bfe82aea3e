package local

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	crdclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"tensorstack.dev/batch/config"
)

// api asks a cluster, as its administrator, whether it is as it should be.
type api struct {
	config  *rest.Config
	core    kubernetes.Interface
	dynamic dynamic.Interface
	crds    crdclient.CustomResourceDefinitionInterface
	http    *http.Client // with the administrator's certificate, for components other than the API server
}

func newAPI(d Dir) (*api, error) {
	config, err := clientcmd.BuildConfigFromFlags("", d.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's kubeconfig: %w", err)
	}
	config.QPS = -1
	a := &api{config: config}
	if a.core, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if a.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	extensions, err := crdclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	a.crds = extensions.CustomResourceDefinitions()
	a.http, err = adminHTTP(d)
	return a, err
}

func adminHTTP(d Dir) (*http.Client, error) {
	cert, err := tls.LoadX509KeyPair(d.certFile(adminPair), d.keyFile(adminPair))
	if err != nil {
		return nil, fmt.Errorf("reading the administrator's certificate: %w", err)
	}
	ca, err := os.ReadFile(d.certFile("ca"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	t := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}}}
	return &http.Client{Transport: t}, nil
}

// healthy asks a health endpoint of the API server.
func (a *api) healthy(uri string) func(context.Context) error {
	return func(ctx context.Context) error {
		return a.core.Discovery().RESTClient().Get().RequestURI(uri).Do(ctx).Error()
	}
}

// serves asks a health endpoint of another component over TLS.
func (a *api) serves(address, path string) func(context.Context) error {
	return func(ctx context.Context) error { return getOK(ctx, a.http, "https://"+address+path) }
}

// servesPlainly asks a health endpoint of another component without TLS.
func (a *api) servesPlainly(address, path string) func(context.Context) error {
	return func(ctx context.Context) error { return getOK(ctx, a.http, "http://"+address+path) }
}

// resolves asks the name server for the API server's own Service.
func resolves(c *Config) func(context.Context) error {
	question := new(dns.Msg).SetQuestion("kubernetes.default.svc."+clusterDomain+".", dns.TypeA)
	return func(ctx context.Context) error {
		client := &dns.Client{Timeout: time.Second}
		answer, _, err := client.ExchangeContext(ctx, question.Copy(), hostPort(c.gateway(), dnsPort))
		if err != nil {
			return err
		}
		if len(answer.Answer) == 0 {
			return errors.New("the Service of the API server has no address yet")
		}
		return nil
	}
}

// etcdReady asks etcd through its socket. Its readiness does not tell that it takes no writes any more, its health does.
func etcdReady(d Dir) func(context.Context) error {
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", d.etcdSocket())
		},
		DisableKeepAlives: true,
	}}
	return func(ctx context.Context) error {
		err := getOK(ctx, client, "http://etcd/health")
		if err != nil && strings.Contains(err.Error(), "NOSPACE") {
			return &blockedError{fmt.Errorf("etcd is full and takes no writes (alarm NOSPACE): `t9k local reset%s` deletes the cluster", nameFlag(d))}
		}
		return err
	}
}

// leastSpace is the space, in bytes, with which etcd cannot write on.
const leastSpace = 1 << 20

// diskFull tells whether the disk has no space left for etcd, which then ends, or answers no more.
func diskFull(d Dir) func() error {
	return func() error {
		var st unix.Statfs_t
		if err := unix.Statfs(string(d), &st); err != nil {
			return fmt.Errorf("looking for space in %s: %w", d, err)
		}
		if st.Bavail*uint64(st.Bsize) < leastSpace {
			return fmt.Errorf("no space left on the disk of %s: free some, and etcd goes on by itself", d)
		}
		return nil
	}
}

func getOK(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 512))
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s: %s", url, answer.Status, bytes.TrimSpace(body))
	}
	return nil
}

func both(first, second func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := first(ctx); err != nil {
			return err
		}
		return second(ctx)
	}
}

// hasDefaultServiceAccount tells whether pods can be made in the namespace "default".
func (a *api) hasDefaultServiceAccount(ctx context.Context) error {
	_, err := a.core.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
	return err
}

// nodeReady tells whether the node takes pods.
func (a *api) nodeReady(ctx context.Context) error {
	node, err := a.core.CoreV1().Nodes().Get(ctx, NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i < 0 {
		return errors.New("the node has not reported yet")
	}
	if c := node.Status.Conditions[i]; c.Status != corev1.ConditionTrue {
		return fmt.Errorf("the node is not ready: %s", c.Message)
	}
	if len(node.Spec.Taints) > 0 {
		return fmt.Errorf("the node is still tainted %s", node.Spec.Taints[0].Key)
	}
	return nil
}

// installQueue makes the default queue, unless there is one, lets the scheduler follow queues, and has the API server hold
// everybody to their rules.
func (a *api) installQueue(ctx context.Context) error {
	queue, err := config.DefaultQueue()
	if err != nil {
		return err
	}
	resource, _ := meta.UnsafeGuessKindToResource(queue.GroupVersionKind())
	_, err = a.dynamic.Resource(resource).Get(ctx, queue.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		err = a.apply(ctx, queue) // the API server holds back a creation for 2 s when the CRD is new
	}
	if err != nil {
		return fmt.Errorf("installing the queue %s: %w", queue.GetName(), err)
	}
	objects, err := config.SchedulerRole("system:kube-scheduler")
	if err != nil {
		return err
	}
	rules, err := config.QueueAdmission()
	if err != nil {
		return err
	}
	objects = append(objects, rules...)
	for _, object := range objects {
		if err := a.apply(ctx, object); err != nil {
			return fmt.Errorf("installing the %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// installWebhook applies what the operator's admission webhook needs, which the API server is to call at address.
func (a *api) installWebhook(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		objects, err := config.Webhook(address)
		if err != nil {
			return err
		}
		for _, object := range objects {
			if err := a.put(ctx, object); err != nil {
				return fmt.Errorf("installing the %s %s: %w", object.GetKind(), object.GetName(), err)
			}
		}
		return nil
	}
}

// put applies an object. A webhook configuration that cannot become what it should, since somebody else has had it call a Service, is
// made anew.
func (a *api) put(ctx context.Context, object *unstructured.Unstructured) error {
	err := a.apply(ctx, object)
	if !apierrors.IsInvalid(err) || object.GroupVersionKind().Group != admissionregistrationv1.GroupName {
		return err
	}
	resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
	if err := a.dynamic.Resource(resource).Delete(ctx, object.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return a.apply(ctx, object)
}

// apply needs an object whose resource is the regular plural of its kind.
func (a *api) apply(ctx context.Context, object *unstructured.Unstructured) error {
	data, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
	force := true
	_, err = a.dynamic.Resource(resource).Namespace(object.GetNamespace()).Patch(ctx, object.GetName(), types.ApplyPatchType, data,
		metav1.PatchOptions{FieldManager: fieldManager, Force: &force})
	return err
}
