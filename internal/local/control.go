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
)

// Status is what a machine process tells about itself and its components.
type Status struct {
	PID        int               `json:"pid"`
	Components []ComponentStatus `json:"components"`
}

// Ready tells whether every component is.
func (s *Status) Ready() bool {
	for _, c := range s.Components {
		if c.State != StateReady {
			return false
		}
	}
	return true
}

// Component is the status of the component called name, or nil.
func (s *Status) Component(name string) *ComponentStatus {
	for i := range s.Components {
		if s.Components[i].Name == name {
			return &s.Components[i]
		}
	}
	return nil
}

// serveControl answers requests on the directory's socket until ctx ends; stop is what a request to stop calls.
func serveControl(ctx context.Context, d Dir, s *Supervisor, stop func()) error {
	if err := os.Remove(d.socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing an old socket: %w", err)
	}
	listener, err := net.Listen("unix", d.socket())
	if err != nil {
		return fmt.Errorf("listening for requests: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(Status{PID: os.Getpid(), Components: s.Status()}) // the client went away
	})
	mux.HandleFunc("POST /stop", func(http.ResponseWriter, *http.Request) { stop() })
	for verb, do := range map[string]func(string) error{"start": s.Start, "stop": s.Stop, "kill": s.Kill} {
		mux.HandleFunc("POST /components/{name}/"+verb, func(w http.ResponseWriter, r *http.Request) {
			if err := do(r.PathValue("name")); err != nil {
				http.Error(w, err.Error(), http.StatusNotFound)
			}
		})
	}
	server := &http.Server{Handler: mux}
	context.AfterFunc(ctx, func() { server.Close() })
	go func() { _ = server.Serve(listener) }() // ends by Close
	return nil
}

// Client talks to the machine process of a directory.
type Client struct {
	http *http.Client
}

// NewClient makes a client; it does not connect yet.
func NewClient(d Dir) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.socket())
	}
	return &Client{http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Status asks how the components are.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	s := &Status{}
	return s, c.do(ctx, http.MethodGet, "/status", s)
}

// Stop asks the machine process to end everything; it does not wait.
func (c *Client) Stop(ctx context.Context) error { return c.do(ctx, http.MethodPost, "/stop", nil) }

// StopComponent ends a component's program and holds it down. It returns when the program has ended.
func (c *Client) StopComponent(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodPost, "/components/"+name+"/stop", nil)
}

// StartComponent lets a component run again that StopComponent held down. It does not wait until it is ready.
func (c *Client) StartComponent(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodPost, "/components/"+name+"/start", nil)
}

// KillComponent ends a component's program by SIGKILL; it starts again by itself.
func (c *Client) KillComponent(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodPost, "/components/"+name+"/kill", nil)
}

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
