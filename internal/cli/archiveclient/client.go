// Package archiveclient reads the archive of a console over HTTP, with the credentials of the user's kubeconfig. Start
// reading at Connect.
package archiveclient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"k8s.io/client-go/rest"

	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/cli/kit"
)

// consoleEnv is the environment variable with the address of the console.
const consoleEnv = "T9K_CONSOLE"

// Options select the console that has the archive.
type Options struct {
	// Console is the address of the console. If it is empty, T9K_CONSOLE or else the kubeconfig gives the address.
	Console string
	// Authority is a file with the certificate authorities of the console. If it is empty, the client uses the
	// authorities in the kubeconfig for the address in the kubeconfig, and the authorities of this machine for any
	// other address.
	Authority string
}

// ErrNone means that neither --console nor T9K_CONSOLE nor the kubeconfig names an archive.
var ErrNone = errors.New("no console with an archive is named: name its address with --console or " + consoleEnv)

// Client reads the archive through the console. Its methods return an *archive.Refusal if the console's response is
// anything but 200 with a JSON body.
type Client struct {
	web  *http.Client
	base *url.URL
	// Namespace is the default namespace: the value of -n, or else the namespace of the kubeconfig's context.
	Namespace string
}

// console is the address of the archive, with the TLS configuration of its server.
type console struct {
	base *url.URL
	tls  rest.TLSClientConfig
}

// where returns the address of the archive: the console that the user names, or else the address in the kubeconfig. It
// returns ErrNone if there is neither, and an error for an address without TLS that is not on this machine. cluster is
// the client configuration of the kubeconfig's cluster.
func (o *Options) where(p *kit.Program, cluster *rest.Config) (*console, error) {
	c := &console{tls: rest.TLSClientConfig{CAFile: o.Authority}}
	named := cmp.Or(o.Console, os.Getenv(consoleEnv))
	if named == "" {
		address, err := p.Archive()
		if err != nil {
			return nil, err
		}
		if address == nil {
			return nil, ErrNone
		}
		named = address.Server
		if o.Authority == "" {
			c.tls.CAData = address.Authority
		}
		// This console accepts the same client certificates as the API server.
		c.tls.CertFile, c.tls.CertData = cluster.CertFile, cluster.CertData
		c.tls.KeyFile, c.tls.KeyData = cluster.KeyFile, cluster.KeyData
	}
	var err error
	c.base, err = url.Parse(named)
	if err != nil || c.base.Host == "" || c.base.Scheme != "http" && c.base.Scheme != "https" {
		return nil, fmt.Errorf("%q is not the address of a console, such as https://console.example.org", named)
	}
	if c.base.Scheme == "http" && !isLoopback(c.base.Hostname()) {
		return nil, fmt.Errorf("%s has no TLS, so that others could read your token: name an address that begins with https", named)
	}
	return c, nil
}

// Connect returns a client with the credentials of the kubeconfig. It sends no request.
func Connect(p *kit.Program, o Options) (*Client, error) {
	cluster, err := p.Connect()
	if err != nil {
		return nil, err
	}
	to, err := o.where(p, cluster.Config)
	if err != nil {
		return nil, err
	}
	if cluster.Config.Impersonate.UserName != "" {
		return nil, errors.New("history cannot be read as another user: leave out --as")
	}
	// The console is a different server from the API server: it gets the user's credentials, but the client uses
	// neither the TLS configuration nor the proxy of the API server.
	config := rest.AnonymousClientConfig(cluster.Config)
	config.TLSClientConfig = to.tls
	config.Host = to.base.Host
	config.BearerToken, config.BearerTokenFile = cluster.Config.BearerToken, cluster.Config.BearerTokenFile
	config.AuthProvider, config.ExecProvider = cluster.Config.AuthProvider, cluster.Config.ExecProvider
	config.Proxy, config.Dial = nil, nil
	hasCertificate := len(to.tls.CertData) > 0 || to.tls.CertFile != ""
	if !hasCertificate && config.BearerToken == "" && config.BearerTokenFile == "" && config.AuthProvider == nil && config.ExecProvider == nil {
		return nil, errors.New("the kubeconfig has no bearer token, which the console needs to identify you: add one, for example with --token")
	}
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of the console: %w", err)
	}
	// Redirects are not followed, so that the token is sent only to the console.
	web.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{web, to.base, cluster.Namespace}, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Jobs returns the jobs that a query selects, the newest first.
func (c *Client) Jobs(ctx context.Context, q *archive.JobQuery) (*archive.JobList, error) {
	return get[archive.JobList](ctx, c, q.Values(), "jobs")
}

// Job returns all archived data of a job except its logs.
func (c *Client) Job(ctx context.Context, uid string) (*archive.JobDetails, error) {
	return get[archive.JobDetails](ctx, c, nil, "jobs", url.PathEscape(uid))
}

// Logs returns the ends of the logs of a job's attempts. If replica is empty, it returns the logs of all replicas.
func (c *Client) Logs(ctx context.Context, uid, replica string) (*archive.LogList, error) {
	q := url.Values{}
	if replica != "" {
		q.Set("replica", replica)
	}
	return get[archive.LogList](ctx, c, q, "jobs", url.PathEscape(uid), "logs")
}

// Usage returns the sums of resource use that a query selects.
func (c *Client) Usage(ctx context.Context, q *archive.UsageQuery) (*archive.UsageList, error) {
	return get[archive.UsageList](ctx, c, q.Values(), "usage")
}

// get sends a GET request for a path below /api/v1/history and decodes the response.
func get[T any](ctx context.Context, c *Client, q url.Values, path ...string) (*T, error) {
	u := c.base.JoinPath(append([]string{"api", "v1", "history"}, path...)...)
	u.RawQuery = q.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("asking the console: %w", err)
	}
	response, err := c.web.Do(r)
	if err != nil {
		return nil, fmt.Errorf("asking the console: %w", err)
	}
	defer response.Body.Close()
	isJSON := strings.HasPrefix(response.Header.Get("Content-Type"), "application/json")
	switch {
	case response.StatusCode == http.StatusOK && isJSON:
		answer := new(T)
		if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
			return nil, fmt.Errorf("reading the console's answer: %w", err)
		}
		return answer, nil
	case isJSON:
		var problem archive.Error
		if err := json.NewDecoder(response.Body).Decode(&problem); err == nil && problem.Error != "" {
			return nil, archive.Refuse(response.StatusCode, "the console at %s: %s", c.base.Host, problem.Error)
		}
	case response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusOK:
		return nil, archive.Refuse(http.StatusNotFound, "%s keeps no archive", c.base)
	}
	return nil, archive.Refuse(response.StatusCode, "the console at %s answers %s", c.base.Host, response.Status)
}
