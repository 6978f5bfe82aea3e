// Package ticket issues and verifies one-time login tokens for the console of the embedded cluster. Any process that
// can read the console's key can issue tokens without contacting the console.
package ticket

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
)

// Key is a secret that the console shares with the processes that may issue tokens.
type Key []byte

const (
	keySize   = 32
	nonceSize = 16
	bodySize  = 8 + nonceSize
)

// NewKey returns a random key.
func NewKey() Key {
	k := make(Key, keySize)
	_, _ = rand.Read(k) // never fails
	return k
}

// ReadKey reads a key from a file, which holds the bytes of the key alone.
func ReadKey(path string) (Key, error) {
	k, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the key of the console: %w", err)
	}
	if len(k) != keySize {
		return nil, fmt.Errorf("reading the key of the console: %s has %d bytes and not %d", path, len(k), keySize)
	}
	return k, nil
}

// Issue returns a new token that contains now as its time of issue.
func (k Key) Issue(now time.Time) string {
	body := make([]byte, bodySize)
	binary.BigEndian.PutUint64(body, uint64(now.UnixNano()))
	_, _ = rand.Read(body[8:]) // never fails
	return base64.RawURLEncoding.EncodeToString(append(body, k.Derive(string(body))...))
}

// ErrForeign means that a token was not issued with the key.
var ErrForeign = errors.New("the token was not issued for this console")

// Issued returns the time at which a token was issued; ErrForeign if the token was not issued with the key. The caller
// must check the age of the token and that it has not been used.
func (k Key) Issued(token string) (time.Time, error) {
	data, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(data) != bodySize+sha256.Size || !hmac.Equal(data[bodySize:], k.Derive(string(data[:bodySize]))) {
		return time.Time{}, ErrForeign
	}
	return time.Unix(0, int64(binary.BigEndian.Uint64(data))), nil
}

// Derive derives a secret for a purpose from the key.
func (k Key) Derive(purpose string) []byte {
	mac := hmac.New(sha256.New, k)
	mac.Write([]byte(purpose))
	return mac.Sum(nil)
}
