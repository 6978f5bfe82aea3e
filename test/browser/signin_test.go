package browser

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/security"
	"github.com/chromedp/chromedp/kb"
	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/console/consolecmd"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/testenv"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/namespace"
	"tensorstack.dev/batch/test/kit/plane"
)

// login and password identify a user of the provider; signedIn is the user's name in the cluster.
const (
	login, password = "test-user2", "verysecure"
	signedIn        = "oidc:id2"
)

// trusted is the client whose tokens the API server trusts. The API server rejects the tokens of the client untrusted.
const (
	trusted, untrusted = "t9k-console", "another-program"
	clientSecret       = "secret-of-the-console"
)

// identities is an OpenID Connect provider and an API server that trusts it.
type identities struct {
	*namespace.Test
	issuer, ca string
}

// newIdentities starts a provider with clients at the given addresses, and an API server that trusts the provider.
func newIdentities(t *testing.T, addresses map[string]string) *identities {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	issuer := "https://" + server.Listener.Addr().String()
	clients := map[string]*storage.Client{}
	for id, address := range addresses {
		clients[id] = storage.WebClient(id, clientSecret, "http://"+address+"/oidc/callback")
	}
	server.Config.Handler = exampleop.SetupServer(issuer, storage.NewStorageWithClients(storage.NewUserStore(issuer), clients), slog.New(slog.NewTextHandler(io.Discard, nil)), false)
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	p := plane.Start(t, testenv.Options{Components: []string{local.Etcd, local.APIServer, local.CRDs}, Args: map[string][]string{local.APIServer: {
		"--oidc-issuer-url=" + issuer, "--oidc-client-id=" + trusted, "--oidc-ca-file=" + ca, "--oidc-username-prefix=oidc:"}}})
	return &identities{namespace.New(t, p), issuer, ca}
}

// console starts the console of an installation as a client of the provider. The console stops when the test calls end
// or ends.
func (i *identities) console(address, client string) (c *console, end func()) {
	i.Helper()
	secret := filepath.Join(i.TempDir(), "secret")
	i.Must(os.WriteFile(secret, []byte(clientSecret+"\n"), 0o600))
	settings, err := local.ConsoleSettings(fmt.Sprintf(`{server: {bindAddress: %[1]q, urls: ["http://%[1]s"]}, health: {bindAddress: "0"}, metrics: {bindAddress: "0"}, accessCacheTime: 500ms,
  signIn: {issuer: %[2]q, clientID: %[3]q, clientSecretFile: %[4]q, caFile: %[5]q}}`, address, i.issuer, client, secret, i.ca))
	i.Must(err)
	file := filepath.Join(i.TempDir(), "console.yaml")
	i.Must(os.WriteFile(file, settings, 0o600))
	cmd := consolecmd.New()
	cmd.SetArgs([]string{"--kubeconfig=" + i.Env.Kubeconfig, "--config=" + file})
	ctx, stop := context.WithCancel(i.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := cmd.ExecuteContext(ctx); err != nil {
			i.Error(err)
		}
	}()
	end = func() {
		stop()
		<-ended
	}
	i.Cleanup(end)
	c = &console{base: "http://" + address}
	i.Await("the console answers", func() error {
		answer, err := http.Get(c.base + "/static/app.css")
		if err == nil {
			answer.Body.Close()
		}
		return err
	})
	return c, end
}

// signIn fills in the sign-in form of the provider.
func (b *tab) signIn() {
	b.Helper()
	b.click("#username")
	b.press(login)
	b.click("#password")
	b.press(password + kb.Enter)
}

// free returns an unused address.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestUsersSignInAndOut verifies that users can sign in to the console of an installation with a provider that the API
// server trusts, can sign in again when their session has ended, and can sign out. If the API server does not trust the
// console's client, the console says so.
func TestUsersSignInAndOut(t *testing.T) {
	chromium(t)
	address, foreign := free(t), free(t)
	i := newIdentities(t, map[string]string{trusted: address, untrusted: foreign})
	i.Create(jobs.New("mine", jobs.Role("w", 1, "true")))
	i.Create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "look"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{batch.GroupVersion.Group}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch", "delete"}}}})
	i.Create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "look"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "look"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: signedIn}}})
	c, end := i.console(address, trusted)
	b := open(t, c)
	call(b, security.SetIgnoreCertificateErrors, security.SetIgnoreCertificateErrorsParams{Ignore: true})
	b.expect("favicon.ico") // of the provider

	jobsPage := "/?ns=" + i.Namespace
	b.visit(jobsPage)
	b.signIn()
	b.at(jobsPage)
	b.shows("mine", signedIn, "Sign out", "live")
	b.looksGood()
	b.reachable()
	if cookies := evaluate[string](b, "document.cookie"); cookies != "" {
		t.Errorf("scripts can read %s", cookies)
	}
	b.visit("/queues")
	b.shows("You may not list", signedIn)

	t.Run("ASessionThatEndsIsRenewed", func(t *testing.T) {
		b.visit(jobsPage)
		b.shows("live")
		b.expect("401")
		b.expect("ERR_")
		end()
		b.shows("not connected")
		b.forgetSession()
		c, end = i.console(address, trusted)
		b.signIn()
		b.at(jobsPage)
		b.shows("mine", "live")
	})
	t.Run("WithoutSession", func(t *testing.T) {
		for path, code := range map[string]int{"/": http.StatusUnauthorized, "/api/v1/jobs": http.StatusUnauthorized, "/static/app.js": http.StatusOK, "/oidc/callback?state=x&code=y": http.StatusBadRequest} {
			answer, err := http.Get(c.base + path)
			i.Must(err)
			answer.Body.Close()
			if answer.StatusCode != code {
				t.Errorf("%s: %s", path, answer.Status)
			}
		}
	})
	t.Run("SignOut", func(t *testing.T) {
		b.click("header form button")
		b.at("/oidc/signed-out")
		b.shows("You are signed out", "Sign in", "too")
		b.looksGood()
		b.reachable()
		b.click(`main a[href="/"]`)
		b.awaits("the provider asks who it is", "document.getElementById('password')")
	})
	t.Run("AClientThatTheAPIServerDoesNotTrust", func(t *testing.T) {
		other, _ := i.console(foreign, untrusted)
		b := open(t, other)
		call(b, security.SetIgnoreCertificateErrors, security.SetIgnoreCertificateErrorsParams{Ignore: true})
		b.expect("favicon.ico")
		b.expect("403")
		b.visit("/")
		b.signIn()
		b.shows("The cluster does not know you", untrusted, "AuthenticationConfiguration")
		b.looksGood()
	})
}

// forgetSession deletes the session cookies from the browser, as their expiry does.
func (b *tab) forgetSession() {
	b.Helper()
	call(b, network.DeleteCookies, network.DeleteCookiesParams{Name: "t9k-session-0", URL: b.base})
}
