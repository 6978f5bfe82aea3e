package guard

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
)

// reviewer answers reviews like an API server: the token "reader" belongs to a user who may read metrics, "other" to a
// user who may not, and every other token is invalid.
func reviewer(t *testing.T) *rest.Config {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any
		if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
			review := &authenticationv1.TokenReview{}
			if err := json.NewDecoder(r.Body).Decode(review); err != nil {
				t.Error(err)
			}
			if token := review.Spec.Token; token == "reader" || token == "other" {
				review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: token}}
			} else {
				review.Status.Error = "[invalid bearer token, token lookup failed]"
			}
			answer = review
		} else {
			review := &authorizationv1.SubjectAccessReview{}
			if err := json.NewDecoder(r.Body).Decode(review); err != nil {
				t.Error(err)
			}
			at := review.Spec.NonResourceAttributes
			review.Status.Allowed = review.Spec.User == "reader" && at != nil && at.Path == "/metrics" && at.Verb == "get"
			answer = review
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

func TestMetricsAreForTheirReadersAlone(t *testing.T) {
	filter, err := New(reviewer(t), http.DefaultClient)
	if err != nil {
		t.Fatal(err)
	}
	handler, err := filter(logr.Discard(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		authorization, method string
		want                  int
	}{
		"a reader":          {"Bearer reader", http.MethodGet, http.StatusOK},
		"another verb":      {"Bearer reader", http.MethodPost, http.StatusForbidden},
		"another user":      {"Bearer other", http.MethodGet, http.StatusForbidden},
		"an invalid token":  {"Bearer forged", http.MethodGet, http.StatusUnauthorized},
		"no token":          {"", http.MethodGet, http.StatusUnauthorized},
		"an empty token":    {"Bearer ", http.MethodGet, http.StatusUnauthorized},
		"another scheme":    {"Basic cmVhZGVyOnJlYWRlcg==", http.MethodGet, http.StatusUnauthorized},
		"nothing but a tab": {"Bearer \t", http.MethodGet, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			request, answer := httptest.NewRequest(test.method, "/metrics", nil), httptest.NewRecorder()
			request.Header.Set("Authorization", test.authorization)
			if handler.ServeHTTP(answer, request); answer.Code != test.want {
				t.Errorf("the answer is %d, want %d: %s", answer.Code, test.want, answer.Body)
			}
		})
	}
}
