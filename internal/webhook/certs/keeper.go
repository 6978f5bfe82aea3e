// Package certs manages the certificate of an admission webhook: it creates the certificate, renews it in time, and
// writes it into the webhook configurations. Several processes may manage the certificate of the same webhook at once.
// Start reading at Keeper.
package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// DefaultLifetime is the default lifetime of a certificate.
	DefaultLifetime = 90 * 24 * time.Hour
	// checkEvery is the longest interval between checks of the Secret and the configurations. The interval is a
	// twentieth of the certificate's lifetime if that is shorter.
	checkEvery = 30 * time.Second
	// firstRetry is the delay after an error. The delay doubles with each further error, up to the interval between
	// checks.
	firstRetry = 200 * time.Millisecond
)

// Keeper manages the certificate of one webhook. The fields Client, Secret and Configuration must be set.
type Keeper struct {
	// Client reads from the API server, not from a cache. It needs the rights to get and update the Secret, and to get
	// and patch the configurations.
	Client client.Client
	// Secret names the Secret that holds the certificates and their keys. The Secret must exist, and it may be empty.
	Secret types.NamespacedName
	// Configuration is the name of the ValidatingWebhookConfiguration and of the MutatingWebhookConfiguration. Their
	// clientConfigs determine the host names of the certificate. If neither exists, the Keeper makes no certificate.
	Configuration string
	// Lifetime is the lifetime of a certificate. The Keeper renews a certificate when less than a third of its lifetime
	// is left. Zero means DefaultLifetime.
	Lifetime time.Duration

	mu      sync.Mutex
	checked bool
	serving *tls.Certificate
	problem error
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. It returns false, because every replica serves the
// webhook.
func (k *Keeper) NeedLeaderElection() bool { return false }

// GetCertificate implements the callback of tls.Config. It returns an error while there is no certificate to serve.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.serving == nil {
		return nil, errors.Join(errors.New("there is no certificate yet"), k.problem)
	}
	return k.serving, nil
}

// Ready implements healthz.Checker. It returns nil if there is a certificate to serve, or if no webhook configuration
// exists; otherwise the reason why there is no certificate.
func (k *Keeper) Ready(*http.Request) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.serving != nil:
		return nil
	case !k.checked:
		return errors.New("the webhook's certificate has not been checked yet")
	default:
		return k.problem
	}
}

// Start implements manager.Runnable. It manages the certificate until ctx ends. It returns no error, because it logs
// errors and tries again.
func (k *Keeper) Start(ctx context.Context) error {
	normal := min(checkEvery, k.lifetime()/20)
	wait, retry := time.Duration(0), firstRetry
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		cert, err := k.check(ctx, time.Now())
		k.report(cert, err)
		if err == nil {
			wait, retry = normal, firstRetry
			continue
		}
		if ctx.Err() == nil && !lostRace(err) {
			log.FromContext(ctx).Error(err, "Cannot check the webhook certificate; trying again", "delay", retry.String())
		}
		wait, retry = min(retry, normal), min(2*retry, checkEvery)
	}
}

// lostRace reports whether an error suggests that another replica wrote first: a conflict for an update, or Invalid for
// a patch, which is also the answer to a failed test operation.
func lostRace(err error) bool { return apierrors.IsConflict(err) || apierrors.IsInvalid(err) }

// report records the result of a check: the certificate to serve, unless it is nil, and the error, which may be nil.
func (k *Keeper) report(cert *tls.Certificate, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.checked, k.problem = true, err
	if cert != nil {
		k.serving = cert
	}
}

// check ensures that the Secret holds a valid certificate and that the configurations trust it. It returns the
// certificate to serve; nil if there is no configuration.
func (k *Keeper) check(ctx context.Context, now time.Time) (*tls.Certificate, error) {
	configurations, err := k.configurations(ctx)
	if err != nil || len(configurations) == 0 {
		return nil, err
	}
	hosts, err := hostsOf(configurations)
	if err != nil {
		return nil, err
	}
	secret := &corev1.Secret{}
	if err := k.Client.Get(ctx, k.Secret, secret); err != nil {
		return nil, fmt.Errorf("reading Secret %s, which is part of config/webhook: %w", k.Secret, err)
	}
	s, renewed, err := readStore(secret.Data).renew(hosts, now, k.lifetime())
	if err != nil {
		return nil, err
	}
	if renewed {
		secret.Data = s.data()
		if err := k.Client.Update(ctx, secret); err != nil {
			return nil, fmt.Errorf("writing Secret %s: %w", k.Secret, err)
		}
		log.FromContext(ctx).Info("Renewed the webhook's certificate", "secret", klog.KObj(secret), "hosts", hosts, "expires", s.newest.leaf.NotAfter)
	}
	for _, c := range configurations {
		if err := k.publish(ctx, c, s.bundle()); err != nil {
			return nil, err
		}
	}
	return s.serving(hosts, now, k.lifetime()).serving, nil
}

// configuration is a webhook configuration of either kind.
type configuration struct {
	kind   string
	object client.Object
	// clients holds the clientConfig of each webhook, in order.
	clients []*admissionregistration.WebhookClientConfig
}

// configurations reads the configurations that exist.
func (k *Keeper) configurations(ctx context.Context) ([]configuration, error) {
	validating, mutating := &admissionregistration.ValidatingWebhookConfiguration{}, &admissionregistration.MutatingWebhookConfiguration{}
	var found []configuration
	for _, c := range []configuration{
		{kind: "ValidatingWebhookConfiguration", object: validating},
		{kind: "MutatingWebhookConfiguration", object: mutating},
	} {
		switch err := k.Client.Get(ctx, types.NamespacedName{Name: k.Configuration}, c.object); {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("reading %s %s: %w", c.kind, k.Configuration, err)
		}
		found = append(found, c)
	}
	for i := range found {
		switch c := &found[i]; c.object {
		case validating:
			for j := range validating.Webhooks {
				c.clients = append(c.clients, &validating.Webhooks[j].ClientConfig)
			}
		case mutating:
			for j := range mutating.Webhooks {
				c.clients = append(c.clients, &mutating.Webhooks[j].ClientConfig)
			}
		}
	}
	return found, nil
}

// publish writes bundle into each caBundle of a configuration that differs from it. It changes nothing else.
func (k *Keeper) publish(ctx context.Context, c configuration, bundle []byte) error {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	// The test makes the patch fail if the configuration has changed, because the indices below may then be wrong.
	patch := []operation{{"test", "/metadata/resourceVersion", c.object.GetResourceVersion()}}
	for i := range c.clients {
		if !bytes.Equal(c.clients[i].CABundle, bundle) {
			patch = append(patch, operation{"add", fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i), bundle})
		}
	}
	if len(patch) == 1 {
		return nil
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	if err := k.Client.Patch(ctx, c.object, client.RawPatch(types.JSONPatchType, data)); err != nil {
		return fmt.Errorf("writing the certificates into %s %s: %w", c.kind, k.Configuration, err)
	}
	log.FromContext(ctx).Info("Wrote the webhook's certificates into its configuration", "kind", c.kind, "configuration", klog.KObj(c.object))
	return nil
}

func (k *Keeper) lifetime() time.Duration {
	if k.Lifetime == 0 {
		return DefaultLifetime
	}
	return k.Lifetime
}

// hostsOf returns the host names under which API servers call the webhook, sorted and without duplicates.
func hostsOf(configurations []configuration) ([]string, error) {
	var hosts []string
	for _, c := range configurations {
		for _, to := range c.clients {
			switch {
			case to.Service != nil:
				hosts = append(hosts, to.Service.Name+"."+to.Service.Namespace+".svc")
			case to.URL != nil:
				u, err := url.Parse(*to.URL)
				if err != nil {
					return nil, fmt.Errorf("reading a URL of %s %s: %w", c.kind, c.object.GetName(), err)
				}
				hosts = append(hosts, u.Hostname())
			}
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts), nil
}
