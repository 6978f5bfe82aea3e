package access

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// reviewer answers SubjectAccessReviews and counts them.
type reviewer struct {
	mu sync.Mutex
	// allowed holds the namespaces in which the user may do everything; an empty name stands for all namespaces.
	allowed map[string]bool
	count   int
}

// ServeHTTP implements http.Handler.
func (s *reviewer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	var review authorization.SubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Status.Allowed = s.allowed[review.Spec.ResourceAttributes.Namespace]
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(&review)
}

// since returns the number of reviews since the last call.
func (s *reviewer) since() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.count
	s.count = 0
	return n
}

// rightsAt returns the Rights of a user whose reviews api answers. now is the clock of the cache.
func rightsAt(t *testing.T, api *reviewer, now *time.Time) *Rights {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	reviews := &Reviews{Client: client, TTL: 10 * time.Second}
	reviews.rights.clock = func() time.Time { return *now }
	return &Rights{reviews, &User{UserInfo: authentication.UserInfo{Username: "mei"}, ID: "mei"}}
}

// TestReviewsAreBounded verifies the number of reviews for a user who may list 2 of 100 namespaces, and when a change
// of rights takes effect.
func TestReviewsAreBounded(t *testing.T) {
	api := &reviewer{allowed: map[string]bool{"ns-1": true, "ns-2": true}}
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	rights := rightsAt(t, api, &now)
	var namespaces []string
	for i := range 100 {
		namespaces = append(namespaces, fmt.Sprintf("ns-%d", i))
	}
	list := func(of ...string) map[string]bool {
		return rights.List(schema.GroupResource{Resource: "pods"}, of).In
	}
	check := func(when string, reviews int, want map[string]bool, got map[string]bool) {
		t.Helper()
		if n := api.since(); n != reviews {
			t.Errorf("%s: %d reviews, want %d", when, n, reviews)
		}
		for name, may := range want {
			if got[name] != may {
				t.Errorf("%s: %s is %v, want %v", when, name, got[name], may)
			}
		}
	}
	check("at first", 101, map[string]bool{"ns-0": false, "ns-1": true}, list(namespaces...))
	check("at once again", 0, map[string]bool{"ns-0": false, "ns-1": true}, list(namespaces...))
	api.mu.Lock()
	api.allowed = map[string]bool{"ns-0": true, "ns-2": true}
	api.mu.Unlock()
	now = now.Add(11 * time.Second)
	check("after a TTL", 3, map[string]bool{"ns-0": false, "ns-1": false, "ns-2": true}, list(namespaces...))
	check("asked for one namespace", 1, map[string]bool{"ns-0": true}, list("ns-0"))
	check("with what was asked for one namespace", 0, map[string]bool{"ns-0": true}, list(namespaces...))
	now = now.Add(50 * time.Second)
	check("after six TTLs", 100, map[string]bool{"ns-0": true, "ns-1": false, "ns-2": true}, list(namespaces...))
}

// TestReviewsForTheArchiveAreBounded verifies the number of reviews for the pages of the archive, that a page about one
// namespace asks for that namespace only, and that a revoked right ends after a TTL.
func TestReviewsForTheArchiveAreBounded(t *testing.T) {
	api := &reviewer{allowed: map[string]bool{"ns-1": true}}
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	rights := rightsAt(t, api, &now)
	var namespaces []string
	for i := range 300 {
		namespaces = append(namespaces, fmt.Sprintf("ns-%d", i))
	}
	check := func(when string, reviews int, seen int, of ...string) {
		t.Helper()
		may, err := rights.MayGet(t.Context(), schema.GroupResource{Resource: "pods/log"}, of)
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for i, allowed := range may {
			if allowed {
				got++
				if !api.allowed[of[i]] && !api.allowed[""] {
					t.Errorf("%s: %s is allowed", when, of[i])
				}
			}
		}
		if n := api.since(); n != reviews || got != seen || len(may) != len(of) {
			t.Errorf("%s: %d reviews, %d of %d namespaces; want %d, %d of %d", when, n, got, len(may), reviews, seen, len(of))
		}
	}
	check("one namespace", 1, 1, "ns-1")
	check("at first", 300, 1, namespaces...)
	check("at once again", 0, 1, namespaces...)
	api.allowed = map[string]bool{}
	now = now.Add(11 * time.Second)
	check("after a TTL", 2, 0, namespaces...)
	api.allowed = map[string]bool{"": true}
	now = now.Add(11 * time.Second)
	check("with a right in all namespaces", 1, 300, namespaces...)
}
