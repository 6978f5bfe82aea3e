// Package origin decides whether a page of the server itself has caused a browser's request, for servers that refuse
// the requests of other pages.
package origin

import (
	"net/http"
	"slices"
)

// Same reports whether a request was caused by a page with one of the given origins, or by the user. For GET and HEAD,
// it also accepts a navigation from another page, such as a link, and requests without an Origin and a Sec-Fetch-Site
// header, which programs other than browsers send.
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
