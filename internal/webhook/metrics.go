package webhook

import (
	"crypto/tls"
	"fmt"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"tensorstack.dev/batch/internal/metrics"
)

// expiryCollector reports when the certificate that the webhook serves at the time of the scrape expires. It reports no
// value while there is no certificate.
type expiryCollector struct {
	desc *prometheus.Desc
	// certificate returns the certificate, or an error while there is none.
	certificate func() (*tls.Certificate, error)
}

// addExpiry adds the metric of the certificate's expiry to a manager. Every replica reports it, because every replica
// serves the webhook.
func addExpiry(mgr manager.Manager, certificate func() (*tls.Certificate, error)) error {
	c := &expiryCollector{desc: metrics.WebhookCertificateExpiry.Desc(), certificate: certificate}
	if err := mgr.Add(everywhere{metrics.Registered(ctrlmetrics.Registry, c)}); err != nil {
		return fmt.Errorf("adding the metric of the webhook's certificate: %w", err)
	}
	return nil
}

// everywhere is a runnable that runs in every replica, not only in the leader.
type everywhere struct{ manager.RunnableFunc }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everywhere) NeedLeaderElection() bool { return false }

// certificateIn returns a function that reads the certificate from tls.crt and tls.key in a directory.
func certificateIn(dir string) func() (*tls.Certificate, error) {
	return func() (*tls.Certificate, error) {
		cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
		return &cert, err
	}
}

// Describe implements prometheus.Collector.
func (c *expiryCollector) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements prometheus.Collector.
func (c *expiryCollector) Collect(out chan<- prometheus.Metric) {
	if cert, err := c.certificate(); err == nil && cert.Leaf != nil {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(cert.Leaf.NotAfter.Unix()))
	}
}
