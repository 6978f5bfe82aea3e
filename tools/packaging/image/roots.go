package image

import (
	"bytes"
	"encoding/pem"
	"errors"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// Roots returns Mozilla's certificate authorities as PEM. The images have them as a file, and not only linked into the
// programs, so that they hold for every program, and so that an image that is built on ours can add authorities: Go
// ignores linked ones as soon as it finds any file in the directory. Authorities that are trusted for older
// certificates only are left out, because a file cannot say so.
func Roots() ([]byte, error) {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	if out.Len() == 0 {
		return nil, errors.New("the bundle has no certificate authorities")
	}
	return out.Bytes(), nil
}
