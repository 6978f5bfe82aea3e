package browser

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/test/kit/plane"
)

// stage is a fake API server. It lists and watches the objects that a test has put on it, serves one log for all pods,
// and accepts dry runs of creations. Unlike a real API server, it accepts any timestamps, so that pages can show jobs
// of several hours.
type stage struct {
	mu sync.Mutex
	// objects holds the objects by the plural of their kind; events holds the watch events that follow the list.
	objects map[string][]any
	events  map[string][]event
	// log is the log of every pod. If it is empty, requests for logs fail as if the node did not answer. written
	// delivers the lines that are appended while a client follows the log; nil if there are none.
	log     string
	written chan string
}

// event is an event of a watch.
type event struct {
	Type   string `json:"type"`
	Object any    `json:"object"`
}

// serveStage starts a console on a stage, with an archive of the scene past; nil means an empty archive.
func serveStage(t testing.TB, s *stage, past *scene) *console {
	t.Helper()
	server := httptest.NewTLSServer(s) // clients send no credentials without TLS
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := plane.WriteKubeconfig(path, &clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: authority}, &clientcmdapi.AuthInfo{Token: "stage"}); err != nil {
		t.Fatal(err)
	}
	rename(t, path, "research-cluster")
	kept := newArchive(t)
	if past != nil {
		past.keep(t, kept)
	}
	return serve(t, withArchive(t, path, kept, allowAll{}))
}

// rename changes the name of the current context of a kubeconfig, which the pages show.
func rename(t testing.TB, path, name string) {
	t.Helper()
	c, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c.Contexts[name], c.CurrentContext = c.Contexts[c.CurrentContext], name
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
}

// add puts an object on the stage.
func (s *stage) add(plural string, o any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects == nil {
		s.objects, s.events = map[string][]any{}, map[string][]event{}
	}
	s.objects[plural] = append(s.objects[plural], o)
}

// ServeHTTP answers read requests and dry runs of creations, which it accepts without any check.
func (s *stage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	plural := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	meta := map[string]any{"resourceVersion": "1"}
	switch {
	case r.Method == http.MethodPost: // a dry run
		object, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(object)
	case plural == "version":
		_, _ = w.Write([]byte(`{"major":"1","minor":"36","gitVersion":"v1.36.3"}`))
	case plural == "log":
		s.serveLog(w, r)
	case r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1":
		out := json.NewEncoder(w)
		if r.URL.Query().Get("sendInitialEvents") == "true" {
			for _, o := range s.objects[plural] {
				_ = out.Encode(event{"ADDED", o})
			}
			meta["annotations"] = map[string]string{"k8s.io/initial-events-end": "true"}
			_ = out.Encode(event{"BOOKMARK", map[string]any{"kind": kindOf[plural][1], "apiVersion": kindOf[plural][0], "metadata": meta}})
		}
		for _, e := range s.events[plural] {
			_ = out.Encode(e)
		}
		s.hold(w, r, true)
	case kindOf[plural] != nil:
		items := s.objects[plural]
		if _, name, found := strings.Cut(r.URL.Query().Get("fieldSelector"), "metadata.name="); found {
			items = slices.DeleteFunc(s.present(plural), func(o any) bool { return o.(metav1.Object).GetName() != name })
		}
		if items == nil || plural == "events" && !strings.Contains(r.URL.Query().Get("fieldSelector"), "GenericJob") {
			items = []any{}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": kindOf[plural][1] + "List", "apiVersion": kindOf[plural][0], "metadata": meta, "items": items})
	default:
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`))
	}
}

// serveLog answers a request for a log. The caller holds the mutex.
func (s *stage) serveLog(w http.ResponseWriter, r *http.Request) {
	if s.log == "" {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500,"message":"Get \"https://10.0.0.7:10250/containerLogs/vision/main\": dial tcp 10.0.0.7:10250: connect: no route to host"}`))
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	s.mu.Unlock() // writing may block until the client reads, and the client requests the pod first
	_, _ = io.WriteString(w, s.lines(r.URL.Query().Get("tailLines"), r.URL.Query().Get("sinceTime")))
	s.mu.Lock()
	s.hold(w, r, r.URL.Query().Get("follow") == "true")
}

// present returns the objects of a plural as they are after all watch events. The caller holds the mutex.
func (s *stage) present(plural string) []any {
	all := slices.Clone(s.objects[plural])
	for _, e := range s.events[plural] {
		all = slices.DeleteFunc(all, func(o any) bool { return o == e.Object })
		if e.Type != "DELETED" {
			all = append(all, e.Object)
		}
	}
	return all
}

// grow adds lines to the log without sending them to its followers.
func (s *stage) grow(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log += text
}

// lines returns the last tail lines of the log, or all lines if tail is not a number, without those that are older than
// since.
func (s *stage) lines(tail, since string) string {
	s.mu.Lock()
	log := s.log
	s.mu.Unlock()
	from := 0
	if n, err := strconv.Atoi(tail); err == nil {
		for from = len(log); n > 0 && from > 0; n-- {
			from = strings.LastIndexByte(log[:from-1], '\n') + 1
		}
	}
	for since != "" && from < len(log) && log[from:] < strings.TrimSuffix(since, "Z") {
		from += strings.IndexByte(log[from:], '\n') + 1
	}
	return log[from:]
}

// hold keeps an answer open until the client disconnects, unless open is false. Meanwhile, it sends appended lines to
// followers of a log. The caller holds the mutex, which hold releases while it waits.
func (s *stage) hold(w http.ResponseWriter, r *http.Request, open bool) {
	f, ok := w.(http.Flusher)
	if !ok || !open {
		return
	}
	f.Flush()
	s.mu.Unlock()
	defer s.mu.Lock()
	written := s.written
	if !strings.HasSuffix(r.URL.Path, "/log") {
		written = nil
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case text := <-written:
			_, _ = io.WriteString(w, text)
			f.Flush()
		}
	}
}

const (
	ours      = "batch.tensorstack.dev/v1beta1"
	scheduler = "scheduler.tensorstack.dev/v1beta1"
)

// kindOf holds the API version and the kind of each plural that the stage serves.
var kindOf = func() map[string][]string {
	all := map[string][]string{
		"pods": {"v1", "Pod"}, "nodes": {"v1", "Node"}, "events": {"v1", "Event"},
		"queues": {scheduler, "Queue"}, "podgroups": {scheduler, "PodGroup"},
	}
	for _, k := range kinds.All {
		all[k.Plural] = []string{ours, k.Name}
	}
	return all
}()
