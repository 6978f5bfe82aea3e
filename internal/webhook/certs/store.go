package certs

import (
	"bytes"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Keys of the Secret's data in addition to those of every TLS Secret.
const (
	previousCert = "previous.crt"
	previousKey  = "previous.key"
)

// store is the content of the Secret: the newest pair and the previous one, which is served until the API servers have
// had time to trust the newest. Either may be nil.
type store struct{ newest, previous *pair }

// readStore parses the data of a Secret. A pair that is missing or invalid is nil in the store.
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

// data returns the content as a Secret's data.
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

// renew returns the store with a new pair if the newest one is missing, has less than a third of its lifetime left or
// does not serve the hosts. The newest pair then becomes the previous one, unless it does not serve the hosts.
// Otherwise renew returns the store unchanged. renewed is true if there is a new pair.
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

// serving returns the pair to serve: the previous pair during the first tenth of the newest pair's lifetime, if the
// previous pair still serves the hosts; otherwise the newest, which may be nil. The delay gives the API servers time to
// read the newest certificate before it is served.
func (s store) serving(hosts []string, now time.Time, lifetime time.Duration) *pair {
	if s.newest != nil && s.previous.serves(hosts, now) && now.Before(s.newest.leaf.NotAfter.Add(-lifetime*9/10)) {
		return s.previous
	}
	return s.newest
}

// bundle returns the certificates that the API servers must trust, as PEM. It depends only on the content of the
// Secret, so that replicas with different clocks write the same bundle.
func (s store) bundle() []byte {
	var all [][]byte
	for _, p := range []*pair{s.newest, s.previous} {
		if p != nil {
			all = append(all, p.certPEM)
		}
	}
	return bytes.Join(all, nil)
}
