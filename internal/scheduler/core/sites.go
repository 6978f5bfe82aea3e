package core

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Site is an empty node, or several equal ones.
type Site struct {
	// Room is the largest sum of requests of the pods on the node. Its entry "pods" is the largest number of pods;
	// without this entry, the number has no limit. The node has none of any other resource that Room does not list.
	Room   Resources
	Domain string
	// Count is the number of such nodes.
	Count int
}

// Sites are the nodes that pods with the same constraints may use. They cache their answers, so only one goroutine at a
// time may use them.
type Sites struct {
	sites []Site
	total Resources
	// lack names the constraint that excludes all nodes, or some nodes; empty if no constraint does.
	lack string
	fits map[string]int
}

// NewSites returns the nodes that pods with some constraints may use. lack names the constraint that excludes all
// nodes, or some nodes that pods may want; it is empty if no constraint does.
func NewSites(all []Site, lack string) *Sites {
	s := &Sites{sites: all, total: Resources{}, lack: lack, fits: map[string]int{}}
	for _, site := range all {
		s.total.add(site.Room, int64(site.Count))
	}
	return s
}

// inDomain returns the sites of one topology domain.
func (s *Sites) inDomain(domain string) *Sites {
	return NewSites(slices.DeleteFunc(slices.Clone(s.sites), func(site Site) bool { return site.Domain != domain }), s.lack)
}

// plenty is a number of pods that no group exceeds.
const plenty = math.MaxInt32

// fit returns the number of pods with these requests that the sites can hold, at most plenty. It caches the result.
func (s *Sites) fit(requests Resources) int {
	key := keyOf(requests)
	n, ok := s.fits[key]
	if !ok {
		for i := range s.sites {
			n = min(plenty, n+s.sites[i].fit(requests)*s.sites[i].Count)
		}
		s.fits[key] = n
	}
	return n
}

func keyOf(requests Resources) string {
	var b strings.Builder
	for _, name := range sortedKeys(requests) {
		fmt.Fprintf(&b, "%s=%d,", name, requests[name])
	}
	return b.String()
}

// fit returns the number of pods with these requests that one empty node can hold.
func (s *Site) fit(requests Resources) int {
	n := int64(plenty)
	if most, ok := s.Room["pods"]; ok {
		n = min(n, most)
	}
	for name, v := range requests {
		if v > 0 {
			n = min(n, s.Room[name]/v)
		}
	}
	return int(max(n, 0))
}

// closest finds the site that comes closest to holding a pod with these requests. It returns the resources that are
// short there, with the amounts that the site has and the pod requests, or "room for 0 pods" if no resource is short.
// The caller must know that the pod fits on no site.
func (s *Sites) closest(requests Resources) string {
	var best []string
	least := math.Inf(1)
	for i := range s.sites {
		var short []string
		sum := 0.0
		for _, name := range sortedKeys(requests) {
			if v, have := requests[name], s.sites[i].Room[name]; v > have {
				short = append(short, fmt.Sprintf("%s of %s %s", amount(name, have), amount(name, v), name))
				sum += float64(v-have) / float64(v)
			}
		}
		if len(short) > 0 && sum < least {
			best, least = short, sum
		}
	}
	if len(best) == 0 {
		return "room for 0 pods"
	}
	return strings.Join(best, ", ")
}
