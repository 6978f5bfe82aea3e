package operator

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
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

// serve adds the server of the probes to a manager. It runs in every replica from the start. The addresses "" and "0"
// disable it.
func (p *probes) serve(mgr ctrl.Manager, address string) error {
	if address == "" || address == "0" {
		return nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serving /healthz and /readyz: %w", err)
	}
	server := &manager.Server{Name: "health probe", Listener: listener,
		Server: &http.Server{Handler: p.handler(), ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 90 * time.Second}}
	if err := mgr.Add(server); err != nil {
		return errors.Join(fmt.Errorf("adding the server of /healthz and /readyz: %w", err), listener.Close())
	}
	return nil
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
