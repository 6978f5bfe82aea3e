package history

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
)

// consoleEnv is the environment variable with the address of the console.
const consoleEnv = "T9K_CONSOLE"

// client reads the archive through the console.
type client struct {
	web       *http.Client
	base      *url.URL
	Namespace string
}

// query has the parameters of a request.
type query map[string]string

func (q query) set(name, value string) {
	if value != "" {
		q[name] = value
	}
}

// console is where the archive is, and how its server is known.
type console struct {
	base *url.URL
	tls  rest.TLSClientConfig
}

// where returns where the archive is: at the console that the user names, or where the kubeconfig says. cluster is the
// connection to the cluster of the kubeconfig.
func (o *options) where(cluster *rest.Config) (*console, error) {
	c := &console{tls: rest.TLSClientConfig{CAFile: o.authority}}
	named := cmp.Or(o.console, os.Getenv(consoleEnv))
	if named == "" {
		address, err := o.Archive()
		if err != nil {
			return nil, err
		}
		if address == nil {
			return nil, fmt.Errorf("no console is named, which keeps the archive: name its address with --console or %s", consoleEnv)
		}
		named = address.Server
		if o.authority == "" {
			c.tls.CAData = address.Authority
		}
		// This server knows the same users as the API server.
		c.tls.CertFile, c.tls.CertData = cluster.CertFile, cluster.CertData
		c.tls.KeyFile, c.tls.KeyData = cluster.KeyFile, cluster.KeyData
	}
	var err error
	c.base, err = url.Parse(named)
	if err != nil || c.base.Host == "" || c.base.Scheme != "http" && c.base.Scheme != "https" {
		return nil, fmt.Errorf("%q is no address of a console, such as https://console.example.org", named)
	}
	if c.base.Scheme == "http" && !isLoopback(c.base.Hostname()) {
		return nil, fmt.Errorf("%s has no TLS, so that others could read your token: name an address that begins with https", named)
	}
	return c, nil
}

// connect returns a client with the credentials of the kubeconfig. It sends no request.
func (o *options) connect() (*client, error) {
	cluster, err := o.Connect()
	if err != nil {
		return nil, err
	}
	to, err := o.where(cluster.Config)
	if err != nil {
		return nil, err
	}
	if cluster.Config.Impersonate.UserName != "" {
		return nil, errors.New("history cannot be read as somebody else: leave out --as")
	}
	// The console is another server than the API server: of its configuration only the credentials are used.
	config := rest.AnonymousClientConfig(cluster.Config)
	config.TLSClientConfig = to.tls
	config.Host = to.base.Host
	config.BearerToken, config.BearerTokenFile = cluster.Config.BearerToken, cluster.Config.BearerTokenFile
	config.AuthProvider, config.ExecProvider = cluster.Config.AuthProvider, cluster.Config.ExecProvider
	config.Proxy, config.Dial = nil, nil
	hasCertificate := len(to.tls.CertData) > 0 || to.tls.CertFile != ""
	if !hasCertificate && config.BearerToken == "" && config.BearerTokenFile == "" && config.AuthProvider == nil && config.ExecProvider == nil {
		return nil, errors.New("the kubeconfig has no bearer token, which the console needs to know you by: add one, for example with --token")
	}
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of the console: %w", err)
	}
	// The token goes to the console alone.
	web.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client{web, to.base, cluster.Namespace}, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// get reads the answer to a request below /api/v1/history.
func (c *client) get(ctx context.Context, path string, q query, answer any) error {
	values := url.Values{}
	for name, value := range q {
		values.Set(name, value)
	}
	u := c.base.JoinPath("api", "v1", "history", path)
	u.RawQuery = values.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return fmt.Errorf("asking the console: %w", err)
	}
	response, err := c.web.Do(r)
	if err != nil {
		return fmt.Errorf("asking the console: %w", err)
	}
	defer response.Body.Close()
	isJSON := strings.HasPrefix(response.Header.Get("Content-Type"), "application/json")
	switch {
	case response.StatusCode == http.StatusOK && isJSON:
		if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
			return fmt.Errorf("reading the console's answer: %w", err)
		}
		return nil
	case isJSON:
		var problem archive.Error
		if err := json.NewDecoder(response.Body).Decode(&problem); err == nil && problem.Error != "" {
			return fmt.Errorf("the console at %s: %s", c.base.Host, problem.Error)
		}
	case response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusOK:
		return fmt.Errorf("%s keeps no archive", c.base)
	}
	return fmt.Errorf("the console at %s answers %s", c.base.Host, response.Status)
}
