// Package webhook is the admission of jobs: what a CRD's own rules cannot tell of them is told when they are created or
// changed, in the words of package kinds, and what they leave out is filled in where other programs look for it. Jobs that name a
// queue get a note of who asked for it. Jobs and pods of queues are held to the size that their queue lets a pod have.
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
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/queue"
	"tensorstack.dev/batch/internal/webhook/certs"
)

// config/webhook has objects of these names, and calls these paths.
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
	// Address is where it is served, as host:port; the host may be empty.
	Address string
	// Namespace is that of the Secret that holds the certificate.
	Namespace string
	// CertificateLifetime defaults to certs.DefaultLifetime.
	CertificateLifetime time.Duration
	// Limits are those that jobs are held to.
	Limits kinds.Limits
	// Shapes tells how large the pods of queues may be.
	Shapes *queue.Shapes
}

// Add serves the webhook in a manager, in every replica of it.
func Add(mgr ctrl.Manager, opts Options) error {
	if opts.Namespace == "" {
		return errors.New("serving the webhook: the namespace of its certificate is unknown outside of a pod: set it, or switch the webhook off")
	}
	host, port, err := splitAddress(opts.Address)
	if err != nil {
		return fmt.Errorf("serving the webhook: %w", err)
	}
	direct, err := directClient(mgr)
	if err != nil {
		return err
	}
	keeper := &certs.Keeper{
		Client: direct, Configuration: configurationName, Lifetime: opts.CertificateLifetime,
		Secret: types.NamespacedName{Namespace: opts.Namespace, Name: secretName},
	}
	server := webhook.NewServer(webhook.Options{Host: host, Port: port, TLSOpts: []func(*tls.Config){func(c *tls.Config) {
		c.MinVersion, c.GetCertificate = tls.VersionTLS13, keeper.GetCertificate
	}}})
	validate := &validator{decoder: admission.NewDecoder(mgr.GetScheme()), limits: opts.Limits, shapes: opts.Shapes}
	server.Register(Path, &webhook.Admission{Handler: validate})
	server.Register(PodPath, &webhook.Admission{Handler: &podValidator{decoder: validate.decoder, shapes: opts.Shapes}})
	server.Register(DefaultPath, &webhook.Admission{Handler: &defaulter{decoder: validate.decoder}})
	server.Register(NotePath, &webhook.Admission{Handler: noter{}})
	if err := mgr.AddReadyzCheck("webhook", keeper.Ready); err != nil {
		return fmt.Errorf("adding the webhook's readiness check: %w", err)
	}
	if err := errors.Join(mgr.Add(keeper), mgr.Add(server)); err != nil {
		return fmt.Errorf("adding the webhook: %w", err)
	}
	return nil
}

// directClient reads from the API server itself. The manager's client would watch Secrets of the whole cluster.
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
