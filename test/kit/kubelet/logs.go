package kubelet

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Logs serves the logs of the pods of one node to the API server, as the node's kubelet does. Tests write the logs.
type Logs struct {
	mu   sync.Mutex
	logs map[string]*podLog // by namespace and name of the pod
	// silent holds the pods for which Silence was called, by namespace and name. Requests for their logs get no answer.
	silent map[string]bool
}

// podLog is the log of a pod. When the log grows or ends, changed is closed and replaced by a new channel.
type podLog struct {
	lines   []logLine
	ended   bool
	changed chan struct{}
}

type logLine struct {
	at   time.Time
	text string
}

// ServeLogs adds a node and serves the logs of its pods until the test ends. dir is the directory of the test's
// control plane, which contains the certificate for the server.
func ServeLogs(t testing.TB, core kubernetes.Interface, dir, node string) *Logs {
	t.Helper()
	l := &Logs{logs: map[string]*podLog{}, silent: map[string]bool{}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	server := &http.Server{Handler: l, BaseContext: func(net.Listener) context.Context { return ctx }, ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() {
		// ServeTLS returns when the test ends.
		_ = server.ServeTLS(listener, filepath.Join(dir, "pki", "loopback.crt"), filepath.Join(dir, "pki", "loopback.key"))
	})
	t.Cleanup(func() {
		stop()
		_ = server.Close()
		serving.Wait()
	})
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if n, err = core.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := core.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), node, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(listener.Addr().(*net.TCPAddr).Port)
	if _, err = core.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return l
}

// of returns the log of a pod. The caller holds the lock.
func (l *Logs) of(pod string) *podLog {
	if l.logs[pod] == nil {
		l.logs[pod] = &podLog{changed: make(chan struct{})}
	}
	return l.logs[pod]
}

func (p *podLog) change() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Write adds a line with the timestamp at to the log of a pod.
func (l *Logs) Write(namespace, pod string, at time.Time, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.of(namespace + "/" + pod)
	p.lines = append(p.lines, logLine{at, text})
	p.change()
}

// End ends the log of a pod, and with it the answers to clients that follow the log.
func (l *Logs) End(namespace, pod string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.of(namespace + "/" + pod)
	p.ended = true
	p.change()
}

// Forget ends and deletes the log of a pod. The next pod with its name has a new log.
func (l *Logs) Forget(namespace, pod string) {
	l.End(namespace, pod)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.logs, namespace+"/"+pod)
}

// Silence makes requests for the log of a pod wait without an answer.
func (l *Logs) Silence(namespace, pod string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent[namespace+"/"+pod] = true
}

// ServeHTTP answers a request for a log: /containerLogs/NAMESPACE/POD/CONTAINER. It supports the parameters tailLines,
// sinceTime and follow.
func (l *Logs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(path) != 4 || path[0] != "containerLogs" {
		http.NotFound(w, r)
		return
	}
	pod, q := path[1]+"/"+path[2], r.URL.Query()
	l.mu.Lock()
	log, silent := l.of(pod), l.silent[pod]
	next := 0
	if n, err := strconv.Atoi(q.Get("tailLines")); err == nil {
		next = max(0, len(log.lines)-n)
	}
	l.mu.Unlock()
	since, _ := time.Parse(time.RFC3339, q.Get("sinceTime"))
	flusher := http.NewResponseController(w)
	if silent {
		<-r.Context().Done()
		return
	}
	for {
		l.mu.Lock()
		lines, ended, changed := log.lines[next:], log.ended, log.changed
		next += len(lines)
		l.mu.Unlock()
		for _, line := range lines {
			if !line.at.Before(since) {
				// An error means that the client has disconnected.
				_, _ = io.WriteString(w, fmt.Sprintf("%s %s\n", line.at.UTC().Format(time.RFC3339Nano), line.text))
			}
		}
		_ = flusher.Flush()
		if ended || q.Get("follow") != "true" {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}
