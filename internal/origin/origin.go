// Package origin determines which page has caused a browser's request, for servers that answer only their own pages.
package origin

import (
	"net/http"
	"slices"
)

// Same reports whether a request was caused by a page of this server, which has one of the given origins, or by the
// user.
func Same(r *http.Request, origins ...string) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	origin := r.Header.Get("Origin")
	switch {
	case origin != "" && !slices.Contains(origins, origin):
		return false
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		return site == "" || site == "same-origin" || site == "none" || r.Header.Get("Sec-Fetch-Mode") == "navigate"
	case site != "":
		return site == "same-origin"
	}
	return origin != ""
}
