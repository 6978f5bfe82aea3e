package signin

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Limits of the session cookies: the size of the value of one cookie in bytes, and the number of cookies. Browsers
// limit a cookie to 4,096 bytes, including its name and attributes.
const (
	partSize = 3800
	maxParts = 5
)

// newBox returns the AEAD for seal and open. Its key is derived from the client secret.
func newBox(secret string) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, "t9k-console sign-in", 32)
	if err != nil {
		return nil, fmt.Errorf("deriving the key of the cookies: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("making the cipher of the cookies: %w", err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// seal encrypts a value to text. open decrypts it only with the same purpose.
func seal(box cipher.AEAD, purpose string, value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err) // only strings and times are sealed, and these always marshal
	}
	return base64.RawURLEncoding.EncodeToString(box.Seal(nil, nil, data, []byte(purpose)))
}

// open decrypts the output of seal into value and reports whether it succeeded.
func open(box cipher.AEAD, purpose, text string, value any) bool {
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return false
	}
	if data, err = box.Open(nil, nil, data, []byte(purpose)); err != nil {
		return false
	}
	return json.Unmarshal(data, value) == nil
}

// cookie returns a cookie of the sign-in. age is its lifetime in seconds; a negative age deletes it. Browsers send it
// on GET navigations from other sites, such as a redirect from the provider, but not with other cross-site requests
// (SameSite=Lax).
func (s Site) cookie(name, value string, age int) *http.Cookie {
	return &http.Cookie{Name: s.Cookie + name, Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: s.secure(), SameSite: http.SameSiteLaxMode}
}

func partName(i int) string { return "-session-" + strconv.Itoa(i) }

// Token returns the ID token from the session cookies of a request; empty if there is no valid session.
func (s *SignIn) Token(r *http.Request, site Site) string {
	var sealed strings.Builder
	for i := range maxParts {
		c, err := r.Cookie(site.Cookie + partName(i))
		if err != nil {
			break
		}
		sealed.WriteString(c.Value)
	}
	var token string
	if !open(s.box, "session", sealed.String(), &token) {
		return ""
	}
	return token
}

// remember sets the session cookies, which expire at until, and deletes the remaining cookies of an earlier session. It
// returns an error if the sealed token is too large.
func remember(w http.ResponseWriter, r *http.Request, site Site, sealed string, until time.Time) error {
	if len(sealed) > maxParts*partSize {
		return fmt.Errorf("the token is too large for cookies: it takes %d bytes and not %d at most. Fewer groups in it would help", len(sealed), maxParts*partSize)
	}
	forget(w, r, site)
	age := max(1, int(time.Until(until).Seconds()))
	for i := 0; sealed != ""; i++ {
		part := sealed[:min(len(sealed), partSize)]
		sealed = sealed[len(part):]
		http.SetCookie(w, site.cookie(partName(i), part, age))
	}
	return nil
}

// forget deletes the session cookies of a browser.
func forget(w http.ResponseWriter, r *http.Request, site Site) {
	for i := range maxParts {
		if _, err := r.Cookie(site.Cookie + partName(i)); err == nil {
			http.SetCookie(w, site.cookie(partName(i), "", -1))
		}
	}
}

const browserCookie = "-browser"

// browserOf returns the secret that binds sign-ins to the browser of a request, and sets the secret as a cookie. All
// tabs share the secret, so several tabs can sign in at the same time.
func browserOf(w http.ResponseWriter, r *http.Request, site Site) string {
	secret := rand.Text()
	if c, err := r.Cookie(site.Cookie + browserCookie); err == nil && len(c.Value) == len(secret) {
		secret = c.Value
	}
	http.SetCookie(w, site.cookie(browserCookie, secret, int(patience.Seconds())))
	return secret
}

// isBrowser reports whether a request comes from the browser with the given secret.
func isBrowser(r *http.Request, site Site, secret string) bool {
	c, err := r.Cookie(site.Cookie + browserCookie)
	return err == nil && secret != "" && subtle.ConstantTimeCompare([]byte(c.Value), []byte(secret)) == 1
}
