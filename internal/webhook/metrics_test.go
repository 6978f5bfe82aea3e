package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"tensorstack.dev/batch/internal/metrics"
)

func TestCertificateExpiryIsReported(t *testing.T) {
	cert, err := &tls.Certificate{Leaf: &x509.Certificate{NotAfter: time.Unix(1e9, 0)}}, error(nil)
	c := &expiryCollector{desc: metrics.WebhookCertificateExpiry.Desc(), certificate: func() (*tls.Certificate, error) { return cert, err }}
	const name = "t9k_webhook_certificate_expiry_timestamp_seconds"
	want := fmt.Sprintf("# HELP %[1]s %[2]s\n# TYPE %[1]s gauge\n%[1]s 1e+09\n", name, metrics.WebhookCertificateExpiry.Help)
	if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	err = errors.New("there is none yet")
	if n := testutil.CollectAndCount(c); n != 0 {
		t.Errorf("%d values without a certificate", n)
	}
}
