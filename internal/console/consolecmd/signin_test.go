package consolecmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"tensorstack.dev/batch/internal/console/access"
)

func TestSettingsOfTheSignIn(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	secret, empty := write("secret", "s3cret\n"), write("empty", "\n")
	good := []string{"--oidc-issuer-url=https://login.example.org", "--oidc-client-id=t9k", "--oidc-client-secret-file=" + secret}
	for _, c := range []struct {
		args      []string
		addressed bool
		problem   string
	}{
		{good, true, ""},
		{append(good, "--oidc-extra-scope=groups,offline"), true, ""},
		{good, false, "needs --url"},
		{good[1:], true, "need --oidc-issuer-url"},
		{good[:2], true, "needs --oidc-client-id and --oidc-client-secret-file"},
		{append(good, "--oidc-issuer-url=http://login.example.org"), true, "is no address such as"},
		{append(good, "--oidc-issuer-url=https://login.example.org?realm=a"), true, "is no address such as"},
		{append(good, "--oidc-issuer-url=login"), true, "is no address such as"},
		{append(good, "--oidc-client-secret-file="+empty), true, "is empty"},
		{append(good, "--oidc-client-secret-file="+empty+"x"), true, "no such file"},
		{append(good, "--oidc-ca-file="+secret), true, "certificate authority of the provider"},
	} {
		o, f := signInOptions{}, pflag.NewFlagSet("", pflag.ContinueOnError)
		o.flags(f)
		if err := f.Parse(c.args); err != nil {
			t.Fatal(err)
		}
		s, err := o.new(&access.Reviews{}, c.addressed, "")
		switch {
		case c.problem == "" && (err != nil || s == nil || s.ClientSecret != "s3cret"):
			t.Errorf("%v: %v", c.args, err)
		case c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)):
			t.Errorf("%v: %v", c.args, err)
		}
	}
	if s, err := (&signInOptions{}).new(&access.Reviews{}, false, ""); s != nil || err != nil {
		t.Errorf("without settings: %v, %v", s, err)
	}
}
