package operator

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// probes serves /healthz and /readyz. Unlike the manager's probes, it answers with the reason why a check fails. This
// discloses nothing about users, because the reasons name no objects of users.
type probes struct {
	mu     sync.Mutex
	checks []readyCheck
}

// readyCheck is a condition of readiness. check returns an error with the reason if the condition does not hold.
type readyCheck struct {
	name  string
	check healthz.Checker
}

// add adds a condition of readiness. It may be called while the probes are served.
func (p *probes) add(name string, check healthz.Checker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checks = append(p.checks, readyCheck{name, check})
}

// set makes the condition name fail with problem, or hold if problem is nil. It adds the condition if it is new.
func (p *probes) set(name string, problem error) {
	check := func(*http.Request) error { return problem }
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.checks {
		if p.checks[i].name == name {
			p.checks[i].check = check
			return
		}
	}
	p.checks = append(p.checks, readyCheck{name, check})
}

// serve starts the server of the probes. The server runs in every replica, and it starts before the manager exists,
// because kubelets restart a program that does not answer. The server ends when ctx ends or stop is called. stop waits
// for the end of the server and returns its error. The addresses "" and "0" disable the server.
func (p *probes) serve(ctx context.Context, address string) (stop func() error, err error) {
	if address == "" || address == "0" {
		return func() error { return nil }, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serving /healthz and /readyz: %w", err)
	}
	server := &manager.Server{Name: "health probe", Listener: listener, ShutdownTimeout: new(time.Second),
		Server: &http.Server{Handler: p.handler(), ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 90 * time.Second}}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	return func() error {
		cancel()
		if err := <-ended; err != nil {
			return fmt.Errorf("serving /healthz and /readyz: %w", err)
		}
		return nil
	}, nil
}

func (p *probes) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "ok") })
	mux.HandleFunc("/readyz", p.readyz)
	return mux
}

// readyz answers with status 200 if all checks succeed and with 500 otherwise. The answer lists the checks if one fails
// or if the query contains `verbose`.
func (p *probes) readyz(w http.ResponseWriter, req *http.Request) {
	p.mu.Lock()
	checks := slices.Clone(p.checks)
	p.mu.Unlock()
	var text strings.Builder
	code := http.StatusOK
	for _, c := range checks {
		if err := c.check(req); err != nil {
			code = http.StatusInternalServerError
			fmt.Fprintf(&text, "[-]%s failed: %v\n", c.name, err)
			continue
		}
		fmt.Fprintf(&text, "[+]%s ok\n", c.name)
	}
	answer := "ok"
	if _, verbose := req.URL.Query()["verbose"]; verbose || code != http.StatusOK {
		answer = text.String() + map[bool]string{true: "readyz check passed\n", false: "readyz check failed\n"}[code == http.StatusOK]
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = fmt.Fprint(w, answer)
}
