package helper

import (
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tensorstack.dev/batch/internal/tensorboard/board"
)

// clock is a clock that a test advances.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func get(t *testing.T, address string) (int, string) {
	t.Helper()
	answer, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// TestProxyCountsRequests verifies that the proxy forwards requests unchanged and counts them, and that the time of an
// unfinished request does not count as quiet. Without a TensorBoard, the proxy answers with an error and counts the
// request too.
func TestProxyCountsRequests(t *testing.T) {
	arrived, release := make(chan string, 1), make(chan struct{})
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			arrived <- r.Host
			<-release
		}
		_, _ = io.WriteString(w, r.Host+r.URL.String())
	}))
	defer behind.Close()
	to, err := url.Parse(behind.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := &clock{now: time.Unix(1000, 0)}
	traffic := newTraffic(c.Now)
	front, side := httptest.NewServer(traffic.watch(forward(to))), httptest.NewServer(traffic)
	defer front.Close()
	defer side.Close()
	activity := func() board.Activity {
		t.Helper()
		_, text := get(t, side.URL)
		var a board.Activity
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	want := func(requests int64, quiet float64) {
		t.Helper()
		if a := activity(); a.Requests != requests || a.QuietSeconds != quiet {
			t.Errorf("the activity is %+v, want %d requests and %v s", a, requests, quiet)
		}
	}

	c.pass(time.Minute)
	want(0, 60)
	host := strings.TrimPrefix(front.URL, "http://")
	if code, text := get(t, front.URL+"/a/b?c=d%2Fe"); code != http.StatusOK || text != host+"/a/b?c=d%2Fe" {
		t.Errorf("the answer is %d %q", code, text)
	}
	want(1, 0)
	c.pass(10 * time.Second)
	want(1, 10)

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		get(t, front.URL+"/slow")
	}()
	<-arrived
	c.pass(time.Hour)
	want(2, 0)
	close(release)
	<-ended
	c.pass(time.Second)
	want(2, 1)

	behind.Close()
	if code, text := get(t, front.URL); code != http.StatusBadGateway || !strings.Contains(text, "TensorBoard does not answer") {
		t.Errorf("without a TensorBoard the answer is %d %q", code, text)
	}
	want(3, 0)
}

// TestFetchKnowsCertificateAuthorities verifies that the program uses its own certificate authorities if the system has
// none, as in an image from scratch.
func TestFetchKnowsCertificateAuthorities(t *testing.T) {
	if os.Getenv("SSL_CERT_FILE") != os.DevNull {
		again := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
		again.Env = append(os.Environ(), "SSL_CERT_FILE="+os.DevNull, "SSL_CERT_DIR="+t.TempDir())
		if out, err := again.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	roots, err := x509.SystemCertPool()
	if err != nil || roots.Equal(x509.NewCertPool()) {
		t.Errorf("no certificate authorities (%v)", err)
	}
}

// TestFetchStoresFiles verifies that files with the same name are stored separately. If a file cannot be fetched, the
// error names its address without the password, and no part of the file remains.
func TestFetchStoresFiles(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/missing") {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, "logs of "+r.URL.Path)
	}))
	defer server.Close()
	dir := filepath.Join(t.TempDir(), "0")
	for range 2 { // twice, as after a crash
		if err := fetchAll(t.Context(), dir, []string{server.URL + "/a/events.out.tfevents.1", server.URL + "/b/events.out.tfevents.1", server.URL}); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"000-events.out.tfevents.1": "logs of /a/events.out.tfevents.1", "001-events.out.tfevents.1": "logs of /b/events.out.tfevents.1", "002-_": "logs of /",
	} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s holds %q (%v), want %q", name, got, err, want)
		}
	}
	address := strings.Replace(server.URL, "http://", "http://user:password@", 1) + "/missing/x"
	err := fetchAll(t.Context(), dir, []string{address})
	if err == nil || !strings.Contains(err.Error(), "/missing/x: the server answers 404") || strings.Contains(err.Error(), "password") {
		t.Errorf("the error of a missing file is %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Errorf("the directory holds %v (%v)", entries, err)
	}
}
