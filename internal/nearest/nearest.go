// Package nearest finds the known names that are most similar to a misspelled one.
package nearest

import (
	"sort"
	"strings"
)

// Names returns at most n of the names that are similar to wanted, the most similar first, then by name. A name is
// similar if few edits turn wanted into the name: one, or about one for every three letters of wanted. A name that
// begins with wanted is also similar if wanted has at least two letters. Case does not matter.
func Names(wanted string, names []string, n int) []string {
	type candidate struct {
		name     string
		distance int
	}
	var near []candidate
	for _, name := range names {
		d := distance(strings.ToLower(wanted), strings.ToLower(name))
		if len(wanted) >= 2 && strings.HasPrefix(strings.ToLower(name), strings.ToLower(wanted)) {
			d = 1
		}
		if d <= max(1, (len(wanted)+1)/3) {
			near = append(near, candidate{name, d})
		}
	}
	sort.Slice(near, func(a, b int) bool {
		if near[a].distance != near[b].distance {
			return near[a].distance < near[b].distance
		}
		return near[a].name < near[b].name
	})
	var found []string
	for _, c := range near[:min(n, len(near))] {
		found = append(found, c.name)
	}
	return found
}

// distance returns the smallest number of edits that turn a into b. An edit inserts, deletes or replaces a byte, or
// swaps two adjacent bytes, which no other edit may then change.
func distance(a, b string) int {
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for k := range row {
		row[k] = k
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for k := range len(b) {
			cost := row[k]
			if a[i] != b[k] {
				cost++
			}
			next[k+1] = min(cost, next[k]+1, row[k+1]+1)
			if i > 0 && k > 0 && a[i] == b[k-1] && a[i-1] == b[k] {
				next[k+1] = min(next[k+1], before[k-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}

// OneOff returns a name that differs from wanted by one letter (another, a missing or an additional one), or by the
// order of two adjacent letters. Case matters. If there are several such names, it returns the last of them. It returns
// an empty string if there is no such name or if wanted itself is a name.
func OneOff(wanted string, names []string) string {
	found := ""
	for _, name := range names {
		switch distance(wanted, name) {
		case 0:
			return ""
		case 1:
			found = name
		}
	}
	return found
}
