package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// clockSkew is how far the clocks of the API servers may be behind the clock of the operator.
const clockSkew = time.Hour

// pair is a self-signed certificate and its key. Clients trust the certificate itself, so there is no authority whose
// key could sign another one.
type pair struct {
	certPEM, keyPEM []byte
	serving         *tls.Certificate
	leaf            *x509.Certificate
}

// newPair creates a key and a certificate for host names and IP addresses. The certificate is valid from clockSkew
// before now until lifetime after now.
func newPair(hosts []string, now time.Time, lifetime time.Duration) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "t9k-operator admission webhook"},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(lifetime),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate for %q: %w", hosts, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("writing a key down: %w", err)
	}
	return readPair(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// readPair parses a certificate and its key. It returns an error if one of them is missing or invalid, or if they do
// not match.
func readPair(certPEM, keyPEM []byte) (*pair, error) {
	if len(certPEM) == 0 || len(keyPEM) == 0 {
		return nil, errors.New("there is no certificate or no key")
	}
	serving, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	return &pair{certPEM: certPEM, keyPEM: keyPEM, serving: &serving, leaf: serving.Leaf}, nil
}

// serves reports whether the certificate is valid now for all these hosts. A nil pair serves none.
func (p *pair) serves(hosts []string, now time.Time) bool {
	if p == nil || now.Before(p.leaf.NotBefore) || !now.Before(p.leaf.NotAfter) {
		return false
	}
	for _, host := range hosts {
		if p.leaf.VerifyHostname(host) != nil {
			return false
		}
	}
	return true
}
