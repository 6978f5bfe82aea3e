package ticket

import (
	"encoding/base64"
	"testing"
	"time"
)

func TestOnlyTokensOfTheKeyAreAccepted(t *testing.T) {
	k, other := NewKey(), NewKey()
	now := time.Unix(1_800_000_000, 5)
	token := k.Issue(now)
	if at, err := k.Issued(token); err != nil || !at.Equal(now) {
		t.Errorf("a token of the key: %v, %v", at, err)
	}
	if token == k.Issue(now) {
		t.Error("two tokens are the same")
	}
	data, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		changed := append([]byte{}, data...)
		changed[i] ^= 1
		if _, err := k.Issued(base64.RawURLEncoding.EncodeToString(changed)); err == nil {
			t.Errorf("byte %d can be changed", i)
		}
	}
	for name, wrong := range map[string]string{"another key": other.Issue(now), "empty": "", "short": token[:20], "longer": token + "AAAA", "the session": base64.RawURLEncoding.EncodeToString(k.Derive("session"))} {
		if _, err := k.Issued(wrong); err == nil {
			t.Errorf("%s: it is accepted", name)
		}
	}
}
