package local

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	crdclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// apiClient calls a cluster's API server and components as the cluster's administrator.
type apiClient struct {
	config  *rest.Config
	core    kubernetes.Interface
	dynamic dynamic.Interface
	crds    crdclient.CustomResourceDefinitionInterface
	http    *http.Client // with the administrator's certificate, for components other than the API server
}

// newAPIClient returns a client of the cluster in d. It sends nothing yet.
func newAPIClient(d Dir) (*apiClient, error) {
	config, err := clientcmd.BuildConfigFromFlags("", d.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's kubeconfig: %w", err)
	}
	config.QPS = -1
	a := &apiClient{config: config}
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

// adminHTTP returns an HTTP client that presents the administrator's certificate and trusts the cluster's authority.
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

// applyOrReplace applies an object. If the object is a webhook configuration and the API server refuses the update as
// invalid, applyOrReplace deletes the object and creates it again. This happens if another client has changed the
// webhook to call a Service, because a webhook with both a Service and a URL is invalid.
func (a *apiClient) applyOrReplace(ctx context.Context, object *unstructured.Unstructured) error {
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

// apply applies an object by server-side apply, and takes over fields of other field managers. The object's resource
// must be the regular plural of its kind.
func (a *apiClient) apply(ctx context.Context, object *unstructured.Unstructured) error {
	resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
	_, err := a.dynamic.Resource(resource).Namespace(object.GetNamespace()).Apply(ctx, object.GetName(), object,
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return err
}
