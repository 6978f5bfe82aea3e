package certs

import (
	"bytes"
	"crypto/x509"
	"testing"
	"time"
)

var hosts = []string{"127.0.0.1", "t9k-webhook.t9k-system.svc"}

const life = 90 * time.Minute

// renewed renews a store, passes it through the data of a Secret, and reports whether there is a new pair.
func renewed(t *testing.T, s store, hosts []string, now time.Time) (store, bool) {
	t.Helper()
	next, changed, err := s.renew(hosts, now, life)
	if err != nil {
		t.Fatal(err)
	}
	return readStore(next.data()), changed
}

// trusted reports whether an API server with the bundle of one store accepts the certificate that another store serves.
func trusted(bundle, served store, now time.Time) bool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle.bundle())
	_, err := served.serving(hosts, now, life).leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: hosts[1], CurrentTime: now})
	return err == nil
}

// TestServedCertificateIsAlwaysTrusted verifies that every API server trusts the served certificate, over several
// renewals, one in each hour. The operator checks the Secret once a minute. API servers and another replica read it
// three minutes late.
func TestServedCertificateIsAlwaysTrusted(t *testing.T) {
	const late = 3
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	var past [late + 1]store
	past[0], _ = renewed(t, store{}, hosts, now)
	for i := range past {
		past[i] = past[0]
	}
	renewals := 0
	for range 365 {
		now = now.Add(time.Minute)
		next, changed := renewed(t, past[0], hosts, now)
		if changed {
			renewals++
		}
		copy(past[1:], past[:late])
		past[0] = next
		if !trusted(past[late], past[0], now) {
			t.Fatalf("%s: an API server with an old bundle does not trust the served certificate", now)
		}
		if !trusted(past[0], past[late], now) {
			t.Fatalf("%s: an API server does not trust the certificate of a replica with an old Secret", now)
		}
	}
	if want := 365 / 60; renewals != want {
		t.Errorf("%d renewals, want %d", renewals, want)
	}
}

func TestUnusableCertificateIsReplacedAtOnce(t *testing.T) {
	now := time.Now()
	good, _ := renewed(t, store{}, hosts, now)
	other, _ := renewed(t, store{}, []string{"elsewhere.example"}, now)
	garbled := good.data()
	garbled["tls.key"] = other.data()["tls.key"]
	for name, c := range map[string]struct {
		stored  store
		now     time.Time
		renewed bool
	}{
		"nothing":                       {store{}, now, true},
		"a good one":                    {good, now, false},
		"another host's":                {other, now, true},
		"the key of another one":        {readStore(garbled), now, true},
		"an expired one":                {good, now.Add(2 * life), true},
		"one from a clock that is fast": {good, now.Add(-2 * clockSkew), true},
		"one with two thirds left":      {good, now.Add(life / 3), false},
		"one with hardly a third left":  {good, now.Add(life*2/3 + time.Second), true},
	} {
		t.Run(name, func(t *testing.T) {
			next, changed := renewed(t, c.stored, hosts, c.now)
			if changed != c.renewed {
				t.Errorf("renewed: %t", changed)
			}
			if !trusted(next, next, c.now) {
				t.Error("the served certificate is not trusted")
			}
			if changed == bytes.Equal(next.bundle(), c.stored.bundle()) {
				t.Error("want the bundle to change exactly on a renewal")
			}
		})
	}
}
