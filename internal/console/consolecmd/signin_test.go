package consolecmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	configv1alpha1 "tensorstack.dev/batch/api/config/v1alpha1"
	"tensorstack.dev/batch/internal/console/access"
)

func TestFilesOfTheSignIn(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	secret, empty := write("secret", "s3cret\n"), write("empty", "\n")
	for _, c := range []struct {
		secret, ca string
		problem    string
	}{
		{secret, "", ""},
		{empty, "", "is empty"},
		{empty + "x", "", "no such file"},
		{secret, secret, "certificate authority of the provider"},
	} {
		s, err := newSignIn(&configv1alpha1.SignIn{Issuer: "https://login.example.org", ClientID: "t9k", ClientSecretFile: c.secret, CAFile: c.ca}, &access.Reviews{}, "")
		switch {
		case c.problem == "" && (err != nil || s.ClientSecret != "s3cret"):
			t.Errorf("%+v: %v", c, err)
		case c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)):
			t.Errorf("%+v: %v", c, err)
		}
	}
}
