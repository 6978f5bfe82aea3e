// Package webhook implements admission for jobs and pods. It validates jobs with package kinds beyond the CRDs' rules,
// sets defaults that other programs read, records who requested a job's queue, and checks the size of jobs' and queues'
// pods. It does not manage the certificate; see package certs. Start reading at Add.
package webhook

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/queue"
	"tensorstack.dev/batch/internal/webhook/certs"
)

// These names and paths must match the objects in config/webhook.
const (
	Path              = "/validate-jobs"
	DefaultPath       = "/default-jobs"
	NotePath          = "/note-jobs"
	PodPath           = "/validate-pods"
	configurationName = "t9k-batch"
	secretName        = "t9k-webhook-cert"
)

// Options are the settings of the webhook.
type Options struct {
	// Address is the address to listen on, as host:port. The host may be empty.
	Address string
	// Namespace is the namespace of the Secret that holds the certificate.
	Namespace string
	// CertificateDir is the directory with tls.crt and tls.key if another program, such as cert-manager, renews them
	// and makes the API server trust them. If it is empty, the webhook manages its own certificate.
	CertificateDir string
	// CertificateLifetime is the lifetime of a certificate that the webhook manages. Zero means certs.DefaultLifetime.
	CertificateLifetime time.Duration
	// Limits are the limits against which jobs are validated.
	Limits kinds.Limits
	// Shapes looks up the largest size of the pods of each queue.
	Shapes *queue.Shapes
	// AddReadyzCheck adds a readiness check to those of the process.
	AddReadyzCheck func(name string, check healthz.Checker)
}

// Add adds the webhook server to a manager. Every replica serves it.
func Add(mgr ctrl.Manager, opts Options) error {
	host, port, err := splitAddress(opts.Address)
	if err != nil {
		return fmt.Errorf("serving the webhook: %w", err)
	}
	server, err := newServer(mgr, opts, webhook.Options{Host: host, Port: port})
	if err != nil {
		return err
	}
	validate := &validator{decoder: admission.NewDecoder(mgr.GetScheme()), limits: opts.Limits, shapes: opts.Shapes}
	server.Register(Path, &webhook.Admission{Handler: validate})
	server.Register(PodPath, &webhook.Admission{Handler: &podValidator{decoder: validate.decoder, shapes: opts.Shapes}})
	server.Register(DefaultPath, &webhook.Admission{Handler: &defaulter{decoder: validate.decoder}})
	server.Register(NotePath, &webhook.Admission{Handler: requesterAnnotator{}})
	if err := mgr.Add(server); err != nil {
		return fmt.Errorf("adding the webhook: %w", err)
	}
	return nil
}

// newServer returns a server with its certificate and its readiness check.
func newServer(mgr ctrl.Manager, opts Options, to webhook.Options) (webhook.Server, error) {
	var ready healthz.Checker
	var server webhook.Server
	var certificate func() (*tls.Certificate, error)
	if opts.CertificateDir != "" {
		to.CertDir = opts.CertificateDir
		to.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 }}
		server = &draining{Server: webhook.NewServer(to)}
		ready, certificate = server.StartedChecker(), certificateIn(opts.CertificateDir)
	} else {
		keeper, err := newKeeper(mgr, opts)
		if err != nil {
			return nil, err
		}
		to.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.MinVersion, c.GetCertificate = tls.VersionTLS13, keeper.GetCertificate }}
		server, ready = &draining{Server: webhook.NewServer(to)}, keeper.Ready
		certificate = func() (*tls.Certificate, error) { return keeper.GetCertificate(nil) }
	}
	if err := addExpiry(mgr, certificate); err != nil {
		return nil, err
	}
	opts.AddReadyzCheck("webhook", ready)
	return server, nil
}

// newKeeper adds to a manager the keeper of a certificate that the webhook manages.
func newKeeper(mgr ctrl.Manager, opts Options) (*certs.Keeper, error) {
	if opts.Namespace == "" {
		return nil, errors.New("serving the webhook: the namespace of its certificate is unknown outside of a pod: set it, or switch the webhook off")
	}
	direct, err := directClient(mgr)
	if err != nil {
		return nil, err
	}
	keeper := &certs.Keeper{
		Client: direct, Configuration: configurationName, Lifetime: opts.CertificateLifetime,
		Secret: types.NamespacedName{Namespace: opts.Namespace, Name: secretName},
	}
	if err := mgr.Add(keeper); err != nil {
		return nil, fmt.Errorf("adding the keeper of the webhook's certificate: %w", err)
	}
	return keeper, nil
}

// directClient returns a client that reads from the API server. The manager's client would watch the Secrets of the
// whole cluster.
func directClient(mgr ctrl.Manager) (client.Client, error) {
	direct, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("making the webhook's client: %w", err)
	}
	return direct, nil
}

func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	if port, err = strconv.Atoi(text); err != nil || port < 1 || port > 65535 {
		return "", 0, fmt.Errorf("%q has no port from 1 to 65535", address)
	}
	return host, port, nil
}
