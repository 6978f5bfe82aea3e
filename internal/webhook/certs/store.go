package certs

import (
	"bytes"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Keys of the Secret's data, beside those of every TLS Secret.
const (
	previousCert = "previous.crt"
	previousKey  = "previous.key"
)

// store is what the Secret holds: the newest pair, and the one before it, which is still served until every API server can
// be expected to trust the newest.
type store struct{ newest, previous *pair }

// readStore reads a Secret. What cannot be read counts as missing.
func readStore(data map[string][]byte) store {
	var s store
	if p, err := readPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey]); err == nil {
		s.newest = p
	}
	if p, err := readPair(data[previousCert], data[previousKey]); err == nil {
		s.previous = p
	}
	return s
}

// data is the Secret's data.
func (s store) data() map[string][]byte {
	data := map[string][]byte{}
	if s.newest != nil {
		data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey] = s.newest.certPEM, s.newest.keyPEM
	}
	if s.previous != nil {
		data[previousCert], data[previousKey] = s.previous.certPEM, s.previous.keyPEM
	}
	return data
}

// renew returns the store with a new pair in it, if the newest has less than a third of its lifetime left or does not suit
// the hosts.
func (s store) renew(hosts []string, now time.Time, lifetime time.Duration) (next store, renewed bool, err error) {
	if s.newest.serves(hosts, now) && now.Before(s.newest.leaf.NotAfter.Add(-lifetime/3)) {
		return s, false, nil
	}
	made, err := newPair(hosts, now, lifetime)
	if err != nil {
		return s, false, err
	}
	next.newest = made
	if s.newest.serves(hosts, now) {
		next.previous = s.newest
	}
	return next, true, nil
}

// serving is the pair to serve. A new one waits for a tenth of its lifetime: by then the API servers have been told of it.
func (s store) serving(hosts []string, now time.Time, lifetime time.Duration) *pair {
	if s.newest != nil && s.previous.serves(hosts, now) && now.Before(s.newest.leaf.NotAfter.Add(-lifetime*9/10)) {
		return s.previous
	}
	return s.newest
}

// bundle lists the certificates that the API servers are to trust, as PEM. It depends on nothing but the Secret, so that
// replicas whose clocks differ agree on it.
func (s store) bundle() []byte {
	var all [][]byte
	for _, p := range []*pair{s.newest, s.previous} {
		if p != nil {
			all = append(all, p.certPEM)
		}
	}
	return bytes.Join(all, nil)
}
