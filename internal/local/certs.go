package local

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"slices"
	"time"
)

// certLifetime is how long a certificate is valid. A certificate in the last tenth of its lifetime is renewed at the
// next start.
const certLifetime = 10 * 365 * 24 * time.Hour

// identity describes a certificate: its files, its subject and where it is valid.
type identity struct {
	file   string // base name of its two files in pki/
	name   string
	groups []string
	hosts  []string // DNS names and then IP addresses at which it may serve; none for a client
}

// authority is the cluster's certificate authority.
type authority struct {
	dir  Dir
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// certFile returns the path of the certificate with this base name.
func (d Dir) certFile(base string) string { return d.join("pki", base+".crt") }

// keyFile returns the path of the private key with this base name.
func (d Dir) keyFile(base string) string { return d.join("pki", base+".key") }

// ensureAuthority loads the cluster's certificate authority. It creates a new one if the files are missing or invalid,
// or if the certificate expires soon.
func ensureAuthority(d Dir) (*authority, error) {
	cert, key, err := loadKeyPair(d, "ca")
	if err == nil && stillValid(cert, time.Now()) {
		return &authority{dir: d, cert: cert, key: key}, nil
	}
	template := newTemplate("t9k-local-ca", nil)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	a := &authority{dir: d, cert: template}
	if a.cert, a.key, err = a.sign("ca", template); err != nil {
		return nil, fmt.Errorf("making the certificate authority: %w", err)
	}
	return a, nil
}

// ensure creates the certificate and key of id. It keeps an existing certificate that this authority signed for the
// same hosts and that does not expire soon.
func (a *authority) ensure(id identity) error {
	cert, _, err := loadKeyPair(a.dir, id.file)
	if err == nil && stillValid(cert, time.Now()) && cert.CheckSignatureFrom(a.cert) == nil && slices.Equal(certHosts(cert), id.hosts) {
		return nil
	}
	template := newTemplate(id.name, id.groups)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	for _, h := range id.hosts {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	if _, _, err := a.sign(id.file, template); err != nil {
		return fmt.Errorf("making the certificate of %s: %w", id.name, err)
	}
	return nil
}

// sign generates a key, signs a certificate made from template, and writes both files. An authority without a key signs
// its own certificate.
func (a *authority) sign(file string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	signer := a.key
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), signer)
	if err != nil {
		return nil, nil, err
	}
	if err := writeKey(a.dir.keyFile(file), key); err != nil {
		return nil, nil, err
	}
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := writeFile(a.dir.certFile(file), data, 0o600); err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return cert, key, err
}

// ensureTokenKey creates the key that signs the tokens of ServiceAccounts if it is missing. It never replaces a key,
// because that would invalidate every token.
func ensureTokenKey(d Dir, file string) error {
	if _, err := readKey(d.keyFile(file)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return writeKey(d.keyFile(file), key)
}

// newTemplate returns a certificate template with a random serial number, a subject and a period of validity.
func newTemplate(name string, groups []string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // crypto/rand never fails on Linux
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name, Organization: groups},
		NotBefore:    now.Add(-time.Hour), // the clock may be set back a little
		NotAfter:     now.Add(certLifetime),
	}
}

// stillValid reports whether the certificate is valid and not in the last tenth of its lifetime.
func stillValid(cert *x509.Certificate, now time.Time) bool {
	return now.After(cert.NotBefore) && now.Before(cert.NotAfter.Add(-certLifetime/10))
}

// certHosts lists the DNS names and then the IP addresses of a certificate, as identity.hosts does.
func certHosts(cert *x509.Certificate) []string {
	hosts := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}

// loadKeyPair reads a certificate and its key. It fails if either file is missing or if the key belongs to another
// certificate.
func loadKeyPair(d Dir, file string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	data, err := os.ReadFile(d.certFile(file))
	if err != nil {
		return nil, nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, nil, fmt.Errorf("%s holds no certificate", d.certFile(file))
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, err
	}
	key, err := readKey(d.keyFile(file))
	if err != nil {
		return nil, nil, err
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, nil, fmt.Errorf("%s is not the key of its certificate", d.keyFile(file))
	}
	return cert, key, nil
}

// readKey reads an EC private key in PEM form.
func readKey(path string) (*ecdsa.PrivateKey, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s holds no key", path)
	}
	return x509.ParseECPrivateKey(block.Bytes)
}

// writeKey writes an EC private key in PEM form to a file that only its owner can read.
func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writeFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}
