package kit

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// downloadTimeout limits the download of a manifest.
const downloadTimeout = time.Minute

// maxRedirects is the largest number of redirects that download follows.
const maxRedirects = 10

// isAddress reports whether the name of a manifest is a URL and not a file.
func isAddress(name string) bool {
	scheme, _, found := strings.Cut(name, "://")
	return found && !strings.ContainsAny(scheme, "./\\")
}

// download opens the manifest at an address. It returns the address without its password as the name for messages. The
// caller closes the manifest.
func download(address string) (io.ReadCloser, string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, "", fmt.Errorf("opening the manifest: %w", err)
	}
	if !trusted(u) {
		return nil, "", fmt.Errorf("opening the manifest %s: only https can be trusted over a network", u.Redacted())
	}
	client := &http.Client{Timeout: downloadTimeout, CheckRedirect: sameTrust}
	answer, err := client.Get(address)
	if err != nil {
		// The cause is not wrapped, because callers would treat a network error as an error of the cluster.
		return nil, "", fmt.Errorf("opening the manifest %s: %s", u.Redacted(), Cause(err))
	}
	if answer.StatusCode != http.StatusOK {
		_ = answer.Body.Close()
		return nil, "", fmt.Errorf("opening the manifest %s: the server answers %s", u.Redacted(), answer.Status)
	}
	return answer.Body, u.Redacted(), nil
}

// sameTrust refuses redirects to addresses that are not trusted, and more than maxRedirects redirects.
func sameTrust(to *http.Request, via []*http.Request) error {
	if !trusted(to.URL) {
		return fmt.Errorf("it redirects to %s, and only https can be trusted over a network", to.URL.Redacted())
	}
	if len(via) > maxRedirects {
		return fmt.Errorf("it redirects more than %d times", maxRedirects)
	}
	return nil
}

// trusted reports whether a response from an address is protected against tampering: the address uses TLS or is on this
// machine.
func trusted(u *url.URL) bool {
	return u.Scheme == "https" || u.Scheme == "http" && isLoopback(u.Hostname())
}

// isLoopback reports whether a host is "localhost" or a loopback address.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
