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

// Browsers keep cookies of 4,096 bytes, with their names and attributes.
const (
	partSize  = 3800
	mostParts = 5
)

// newBox returns what seals and opens, with a key that is derived from the client's secret.
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

// seal returns a value as text that only the console can read, and only for the same purpose.
func seal(box cipher.AEAD, purpose string, value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err) // what is sealed are strings and times
	}
	return base64.RawURLEncoding.EncodeToString(box.Seal(nil, nil, data, []byte(purpose)))
}

// open reads what seal has returned, and reports whether it could.
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

// cookie returns a cookie of the sign-in. It is sent when another page, such as one of the provider, leads to the console,
// and with no other request that another page makes.
func (s Site) cookie(name, value string, age int) *http.Cookie {
	return &http.Cookie{Name: s.Cookie + name, Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: s.secure(), SameSite: http.SameSiteLaxMode}
}

func partName(i int) string { return "-session-" + strconv.Itoa(i) }

// Token returns the token of the user who is signed in with a browser; empty if nobody is.
func (s *SignIn) Token(r *http.Request, site Site) string {
	var sealed strings.Builder
	for i := range mostParts {
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

// remember gives a session to a browser, and takes away what is left of the one before.
func remember(w http.ResponseWriter, r *http.Request, site Site, sealed string, until time.Time) error {
	if len(sealed) > mostParts*partSize {
		return fmt.Errorf("the token is too large for cookies: it takes %d bytes and not %d at most. Fewer groups in it would help", len(sealed), mostParts*partSize)
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

// forget ends the session of a browser.
func forget(w http.ResponseWriter, r *http.Request, site Site) {
	for i := range mostParts {
		if _, err := r.Cookie(site.Cookie + partName(i)); err == nil {
			http.SetCookie(w, site.cookie(partName(i), "", -1))
		}
	}
}

const browserCookie = "-browser"

// browserOf returns the secret of a browser that signs in. Several tabs can sign in at once with the same.
func browserOf(w http.ResponseWriter, r *http.Request, site Site) string {
	secret := rand.Text()
	if c, err := r.Cookie(site.Cookie + browserCookie); err == nil && len(c.Value) == len(secret) {
		secret = c.Value
	}
	http.SetCookie(w, site.cookie(browserCookie, secret, int(patience.Seconds())))
	return secret
}

// isBrowser reports whether a request comes from the browser with a secret.
func isBrowser(r *http.Request, site Site, secret string) bool {
	c, err := r.Cookie(site.Cookie + browserCookie)
	return err == nil && secret != "" && subtle.ConstantTimeCompare([]byte(c.Value), []byte(secret)) == 1
}
