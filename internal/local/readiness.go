package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apiServerHealth returns a check of a health endpoint of the API server.
func (a *apiClient) apiServerHealth(uri string) func(context.Context) error {
	return func(ctx context.Context) error {
		return a.core.Discovery().RESTClient().Get().RequestURI(uri).Do(ctx).Error()
	}
}

// httpsHealth returns a check of another component's health endpoint over TLS.
func (a *apiClient) httpsHealth(address, path string) func(context.Context) error {
	return func(ctx context.Context) error { return getOK(ctx, a.http, "https://"+address+path) }
}

// httpHealth returns a check of another component's health endpoint without TLS.
func (a *apiClient) httpHealth(address, path string) func(context.Context) error {
	return func(ctx context.Context) error { return getOK(ctx, a.http, "http://"+address+path) }
}

// dnsReady returns a check that the name server resolves the API server's own Service.
func dnsReady(c *Config) func(context.Context) error {
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

// etcdReady returns a check of the free disk space and of etcd's health through its socket. The check uses the health
// endpoint, because the readiness endpoint does not report that etcd no longer accepts writes.
func etcdReady(d Dir) func(context.Context) error {
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", d.etcdSocket())
		},
		DisableKeepAlives: true,
	}}
	full := diskFull(d)
	return func(ctx context.Context) error {
		if err := full(); err != nil { // an etcd that has restarted answers until its next write
			return &blockedError{err}
		}
		err := getOK(ctx, client, "http://etcd/health")
		if err != nil && strings.Contains(err.Error(), "NOSPACE") {
			return &blockedError{fmt.Errorf("etcd is full and takes no writes (alarm NOSPACE): `t9k local reset%s` deletes the cluster", d.NameFlag())}
		}
		return err
	}
}

// minFreeBytes is the free disk space, in bytes, below which etcd cannot write.
const minFreeBytes = 1 << 20

// diskFull returns a check that fails when the disk has no space left for etcd. Without space, etcd exits or does not
// answer.
func diskFull(d Dir) func() error {
	return func() error {
		var st unix.Statfs_t
		if err := unix.Statfs(string(d), &st); err != nil {
			return fmt.Errorf("reading the free space in %s: %w", d, err)
		}
		if st.Bavail*uint64(st.Bsize) < minFreeBytes {
			return fmt.Errorf("no space left on the disk of %s: free some; etcd then continues", d)
		}
		return nil
	}
}

// getOK sends a GET request and returns an error unless the answer is 200.
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

// both returns a check that runs first and, if that succeeds, second.
func both(first, second func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := first(ctx); err != nil {
			return err
		}
		return second(ctx)
	}
}

// hasDefaultServiceAccount returns nil if the namespace "default" has the ServiceAccount that its pods need.
func (a *apiClient) hasDefaultServiceAccount(ctx context.Context) error {
	_, err := a.core.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
	return err
}

// nodeReady returns nil if the node accepts pods: it is Ready and has no taints.
func (a *apiClient) nodeReady(ctx context.Context) error {
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
