package image

import (
	"bytes"
	"encoding/pem"
	"errors"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// Roots returns Mozilla's certificate authorities as PEM. Images contain the authorities as a file, although Go
// programs can link them in: the file applies to every program, and derived images can add authorities. Go ignores
// linked authorities as soon as it finds any file in the directory, so an added file would otherwise replace all of
// them. Authorities that are trusted only for older certificates are left out, because the file format cannot express
// that.
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
