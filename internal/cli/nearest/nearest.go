// Package nearest finds the names that somebody probably meant.
package nearest

import (
	"sort"
	"strings"
)

// Names returns at most n of the names that differ from wanted in few letters, or of which it is the beginning, the
// nearest first.
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

// distance is the number of letters to insert, drop or replace to get from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for k := range row {
		row[k] = k
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for k := range len(b) {
			cost := diagonal
			if a[i] != b[k] {
				cost++
			}
			diagonal = row[k+1]
			row[k+1] = min(cost, row[k]+1, row[k+1]+1)
		}
	}
	return row[len(b)]
}
