// Package webhook implements the admission webhooks for jobs and pods. They validate jobs with package kinds, set
// defaults that other programs read, record who requested a job's queue, and check the size of pods against their
// queue. Package certs manages the certificate. Start reading at Add.
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

// Path and PodPath are the paths of the validating webhooks of jobs and of pods. DefaultPath and NotePath are the paths
// of the mutating webhooks of jobs, which set defaults and record the requester. These paths and names must match the
// objects in config/webhook.
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
	// Address is the address on which the server listens, as HOST:PORT or :PORT.
	Address string
	// Namespace is the namespace of the Secret that holds the certificate. It may be empty if CertificateDir is set.
	Namespace string
	// CertificateDir is a directory with tls.crt and tls.key. Another program, such as cert-manager, renews these files
	// and makes the API server trust them. If CertificateDir is empty, the webhook manages its own certificate.
	CertificateDir string
	// CertificateLifetime is the lifetime of a certificate that the webhook manages. Zero means certs.DefaultLifetime.
	CertificateLifetime time.Duration
	// Limits are the limits against which jobs are validated.
	Limits kinds.Limits
	// Shapes looks up the largest requests that each queue allows for a pod.
	Shapes *queue.Shapes
	// AddReadyzCheck adds a readiness check to the process. Add calls it once, with the name "webhook".
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

// newServer returns the server, which the caller adds to the manager. newServer itself adds the metric of the
// certificate and, unless CertificateDir is set, the keeper of the certificate to the manager. It also adds the
// readiness check.
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

// newKeeper creates the keeper of the webhook's own certificate and adds the keeper to the manager.
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

// directClient returns a client that reads from the API server and not from a cache. The manager's client would list
// and watch all Secrets of the cluster.
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
