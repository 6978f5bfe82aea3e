package consolecmd

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certutil "k8s.io/client-go/util/cert"
)

// TestCommandRefusesAnInvalidFile verifies that the console exits with an error that names the file and the problem,
// such as an unknown field.
func TestCommandRefusesAnInvalidFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	for text, want := range map[string]string{
		"": "is empty",
		"apiVersion: config.tensorstack.dev/v1alpha1\nkind: ConsoleConfiguration\narchives: {}\n": `unknown field "archives"`,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := New()
		cmd.SetArgs([]string{"--config=" + file})
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%q: the error lacks %q or the file: %v", text, want, err)
		}
	}
}

func TestFileReplacesTheArchiveOfTheEnvironment(t *testing.T) {
	t.Setenv(archiveEnv, "/from/environment.db")
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: config.tensorstack.dev/v1alpha1\nkind: ConsoleConfiguration\narchive: {address: /from/file.db}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"": "/from/environment.db", file: "/from/file.db"} {
		o := options{configFile: path}
		if err := o.readSettings(); err != nil || o.settings.Archive.Address != want {
			t.Errorf("with the file %q the archive is %q, error %v", path, o.settings.Archive.Address, err)
		}
	}
}

// TestRenewedCertificateIsServed verifies that the console serves a renewed certificate. The test renews the
// certificate like the kubelet in a Secret volume: it points the symbolic link ..data to a new directory and deletes
// the old one.
func TestRenewedCertificateIsServed(t *testing.T) {
	dir := t.TempDir()
	renew := func(name string) {
		t.Helper()
		cert, key, err := certutil.GenerateSelfSignedCertKey(name, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		for file, data := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
			if err := os.WriteFile(filepath.Join(dir, name, file), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		next := filepath.Join(dir, "..next")
		if err := os.Symlink(name, next); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	renew("first.example.org")
	for _, file := range []string{"tls.crt", "tls.key"} {
		if err := os.Symlink(filepath.Join("..data", file), filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- serveAll(ctx, []endpoint{{what: "a page", address: address, cert: filepath.Join(dir, "tls.crt"), key: filepath.Join(dir, "tls.key"), handler: http.NotFoundHandler()}})
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	await := func(name string) {
		t.Helper()
		var problem error
		for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			if problem = presents(address, name); problem == nil {
				return
			}
		}
		t.Fatal(problem)
	}
	await("first.example.org")
	renew("second.example.org")
	if err := os.RemoveAll(filepath.Join(dir, "first.example.org")); err != nil {
		t.Fatal(err)
	}
	await("second.example.org")
}

// presents returns an error unless the server at an address presents a certificate for a name.
func presents(address, name string) error {
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.ConnectionState().PeerCertificates[0].VerifyHostname(name); err != nil {
		return fmt.Errorf("the certificate: %w", err)
	}
	return nil
}
