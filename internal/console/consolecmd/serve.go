package consolecmd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"tensorstack.dev/batch/internal/configuration"
	"tensorstack.dev/batch/internal/console/live"
	"tensorstack.dev/batch/internal/version"
)

// clientConfig returns the configuration of clients of the API server. An empty kubeconfig means the ServiceAccount of
// the pod.
func clientConfig(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("loading the client configuration: %w", err)
	}
	config.QPS = -1 // API Priority and Fairness protects the API server
	config.UserAgent = "t9k-console"
	return config, nil
}

// endpoint is a handler at an address. what names it in messages. If cert and key name the files of a certificate, it
// serves HTTPS and reloads the certificate when the files change.
type endpoint struct {
	what, address, cert, key string
	// clients is the file with the certificate authority that verifies client certificates; empty if clients have no
	// certificates.
	clients string
	handler http.Handler
	// own is an in-memory certificate for HTTPS; nil if there is none.
	own *tls.Certificate
	// end stops the streams that the handler has started; nil if it has none.
	end func()
}

// serve starts the caches and serves endpoints until ctx ends or an endpoint fails.
func serve(ctx context.Context, config *rest.Config, endpoints func(*live.Cache) []endpoint) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cache, err := live.Start(ctx, config, "")
	if err != nil {
		return err
	}
	defer cache.Wait()
	defer stop()
	return serveAll(ctx, endpoints(cache))
}

// serveAll serves endpoints until ctx ends or an endpoint fails. It skips endpoints that their addresses disable.
func serveAll(ctx context.Context, all []endpoint) error {
	ended := make(chan error, len(all))
	var running sync.WaitGroup
	defer running.Wait()
	for _, e := range all {
		if !configuration.Serves(e.address) {
			continue
		}
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", e.address)
		if err != nil {
			return fmt.Errorf("serving %s: %w", e.what, err)
		}
		web := &http.Server{Handler: e.handler, BaseContext: func(net.Listener) context.Context { return ctx },
			ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
		defer func() {
			_ = web.Close() // the error only reports that a listener was already closed
			if e.end != nil {
				e.end()
			}
		}()
		running.Go(func() { ended <- fmt.Errorf("serving %s: %w", e.what, e.on(ctx, web, listener)) })
		klog.FromContext(ctx).Info("Serving", "what", e.what, "address", listener.Addr().String(), "tls", e.cert != "" || e.own != nil, "version", version.Version)
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}

// on serves the endpoint with the server web on a listener until the server is closed or fails.
func (e *endpoint) on(ctx context.Context, web *http.Server, listener net.Listener) error {
	switch {
	case e.own != nil:
		web.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*e.own}}
		return web.ServeTLS(listener, "", "")
	case e.cert == "":
		return web.Serve(listener)
	}
	files, err := certwatcher.New(e.cert, e.key)
	if err != nil {
		return fmt.Errorf("reading the certificate: %w", err)
	}
	web.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: files.GetCertificate}
	if e.clients != "" {
		authority, err := certutil.NewPool(e.clients)
		if err != nil {
			return fmt.Errorf("reading the certificate authority of clients: %w", err)
		}
		web.TLSConfig.ClientCAs, web.TLSConfig.ClientAuth = authority, tls.VerifyClientCertIfGiven
	}
	ctx, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop()
	watching.Go(func() {
		if err := files.Start(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot watch the certificate; a new one takes effect after a restart", "what", e.what, "file", e.cert)
		}
	})
	return web.ServeTLS(listener, "", "")
}

// probes serves /healthz, and /readyz, which succeeds if all checks succeed.
func probes(checks ...func() error) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		var problems []error
		for _, check := range checks {
			problems = append(problems, check())
		}
		if err := errors.Join(problems...); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprint(w, "ok")
	})
	return mux
}

// settled returns a check that succeeds when all channels are closed. A nil channel counts as closed.
func settled(all ...<-chan struct{}) func() error {
	return func() error {
		for _, s := range all {
			select {
			case <-s:
			default:
				if s != nil {
					return errors.New("the caches have not synced with the API server yet")
				}
			}
		}
		return nil
	}
}
