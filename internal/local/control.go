package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// Status is the state of a machine process and its components. The components are in the order of their dependencies.
type Status struct {
	// PID is the process ID of the machine process.
	PID        int               `json:"pid"`
	Components []ComponentStatus `json:"components"`
	// Shutdown is nil unless the cluster is shutting down.
	Shutdown *ShutdownStatus `json:"shutdown,omitempty"`
}

// Ready reports whether every component is ready and the cluster is not shutting down.
func (s *Status) Ready() bool {
	if s.Shutdown != nil {
		return false
	}
	for _, c := range s.Components {
		if c.State != StateReady {
			return false
		}
	}
	return true
}

// Component returns the status of the component called name, or nil if there is none.
func (s *Status) Component(name string) *ComponentStatus {
	for i := range s.Components {
		if s.Components[i].Name == name {
			return &s.Components[i]
		}
	}
	return nil
}

// control is the HTTP server on the socket of the cluster's directory.
type control struct {
	supervisor *Supervisor
	shutdown   *shutdown
}

// serve answers requests until ctx ends. It then closes the server and returns nil. It returns an error if it cannot
// listen or if the server fails.
func (c *control) serve(ctx context.Context, d Dir) error {
	if err := os.Remove(d.socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing an old socket: %w", err)
	}
	listener, err := net.Listen("unix", d.socket())
	if err != nil {
		return fmt.Errorf("listening for requests: %w", err)
	}
	server := &http.Server{Handler: c.handler()}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		server.Close()
		close(closed)
	})
	err = server.Serve(listener)
	if stop() {
		return fmt.Errorf("answering requests: %w", err)
	}
	<-closed
	return nil
}

// handler returns the handler of all routes: status, probe and stop of the cluster, and start, stop and kill of a
// component.
func (c *control) handler() http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, components []ComponentStatus) {
		status := Status{PID: os.Getpid(), Components: components, Shutdown: c.shutdown.currentStatus()}
		_ = json.NewEncoder(w).Encode(status) // fails only if the client has disconnected
	}
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { answer(w, c.supervisor.Status()) })
	mux.HandleFunc("GET /probe", func(w http.ResponseWriter, r *http.Request) { answer(w, c.supervisor.Probe(r.Context())) })
	mux.HandleFunc("POST /stop", func(w http.ResponseWriter, r *http.Request) {
		grace, err := time.ParseDuration(r.FormValue("grace"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		c.shutdown.request(grace)
	})
	for verb, do := range map[string]func(string) error{"start": c.supervisor.Start, "stop": c.supervisor.Stop, "kill": c.supervisor.Kill} {
		mux.HandleFunc("POST /components/{name}/"+verb, func(w http.ResponseWriter, r *http.Request) {
			if err := do(r.PathValue("name")); err != nil {
				http.Error(w, err.Error(), http.StatusNotFound)
			}
		})
	}
	return mux
}

// Client is a client of a cluster's machine process.
type Client struct {
	http *http.Client
}

// NewClient returns a client of the cluster in d. It does not connect yet.
func NewClient(d Dir) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.socket())
	}
	return &Client{http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Probe returns the status after the machine process has checked every ready component again. It fails if the machine
// process does not answer in time.
func (c *Client) Probe(ctx context.Context) (*Status, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout+answerTime)
	defer cancel()
	s := &Status{}
	return s, c.do(ctx, http.MethodGet, "/probe", s)
}

// answerTime is how long the machine process may take to answer, in addition to the duration of a probe.
const answerTime = 500 * time.Millisecond

// Status returns the last known status of the components, without checking them again.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	s := &Status{}
	return s, c.do(ctx, http.MethodGet, "/status", s)
}

// Stop requests a shutdown of the cluster, with grace as the grace period of the pods. It does not wait for the
// shutdown.
func (c *Client) Stop(ctx context.Context, grace time.Duration) error {
	return c.do(ctx, http.MethodPost, "/stop?grace="+grace.String(), nil)
}

// StopComponent stops a component's program and keeps it stopped. It returns when the program has exited.
func (c *Client) StopComponent(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodPost, "/components/"+name+"/stop", nil)
}

// StartComponent starts a component that StopComponent stopped. It does not wait until the component is ready.
func (c *Client) StartComponent(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodPost, "/components/"+name+"/start", nil)
}

// KillComponent kills a component's program with SIGKILL and returns when it has exited. The supervisor starts it
// again.
func (c *Client) KillComponent(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodPost, "/components/"+name+"/kill", nil)
}

// do sends a request and decodes the JSON answer into the value that into points to, unless into is nil.
func (c *Client) do(ctx context.Context, method, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, "http://machine"+path, nil)
	if err != nil {
		return err
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("asking the cluster's machine process: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(answer.Body, 1024))
		return errors.New(strings.TrimSpace(string(body)))
	}
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(answer.Body).Decode(into); err != nil {
		return fmt.Errorf("reading the machine process's answer: %w", err)
	}
	return nil
}
