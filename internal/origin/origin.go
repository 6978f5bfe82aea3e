// Package origin decides whether a page of the server itself has caused a browser's request, for servers that refuse
// the requests of other pages.
package origin

import (
	"net/http"
	"slices"
)

// Same reports whether a page of the server itself has caused a request, as far as the headers of the request show.
// origins are the origins of the server. Same never accepts a request with another Origin header. For GET and HEAD, it
// also accepts requests that the user has caused, for example with a bookmark, navigations from other pages, such as
// links, and requests with neither an Origin nor a Sec-Fetch-Site header, which programs other than browsers send.
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
