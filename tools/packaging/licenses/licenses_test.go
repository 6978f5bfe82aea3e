package licenses

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// beerware is a known licence that is not allowed.
const beerware = `"THE BEER-WARE LICENSE" (Revision 42):
<author@example.org> wrote this file. As long as you retain this notice you can do whatever you want with this stuff. If we
meet some day, and you think this stuff is worth it, you can buy me a beer in return.`

// TestClassify verifies that licences that are not allowed, texts that are not licences, and modules without a licence
// file are refused, and that an allowed licence is in the notices.
func TestClassify(t *testing.T) {
	apache, err := os.ReadFile("../../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ text, want string }{
		"allowed":     {string(apache), ""},
		"not allowed": {beerware, "not allowed"},
		"no licence":  {strings.Repeat("All rights are reserved by somebody. ", 30), "no licence that is known"},
		"missing":     {"", "has no licence file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if c.text != "" {
				if err := os.WriteFile(filepath.Join(dir, "LICENSE"), []byte(c.text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			m := Module{Path: "example.org/m", Version: "v1.0.0"}
			err := m.read(dir, []string{dir})
			if c.want == "" && (err != nil || !bytes.Contains(Notices([]Module{m}), []byte("Apache License"))) {
				t.Errorf("got %v, %v", m.Licenses, err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
