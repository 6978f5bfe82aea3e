package operator

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestReadyzSaysWhatIsMissing(t *testing.T) {
	var problem error
	p := &probes{}
	p.add("caches", func(*http.Request) error { return nil })
	p.add("permissions", func(*http.Request) error { return problem })
	server := httptest.NewServer(p.handler())
	defer server.Close()
	for _, test := range []struct {
		path    string
		problem error
		code    int
		text    string
	}{
		{"/healthz", errors.New("which is not about health"), http.StatusOK, "ok"},
		{"/readyz", nil, http.StatusOK, "ok"},
		{"/readyz?verbose", nil, http.StatusOK, "[+]caches ok\n[+]permissions ok\nreadyz check passed\n"},
		{"/readyz", errors.New("may not create pods"), http.StatusInternalServerError, "[+]caches ok\n[-]permissions failed: may not create pods\nreadyz check failed\n"},
	} {
		problem = test.problem
		answer, err := http.Get(server.URL + test.path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != test.code || string(text) != test.text {
			t.Errorf("%s answers %d (%v):\n%s", test.path, answer.StatusCode, err, text)
		}
	}
}
