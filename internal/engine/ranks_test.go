package engine

import "testing"

// TestCountRanks verifies that ranks are counted up to the limit, without a loop over them, and that malformed parts do
// not count.
func TestCountRanks(t *testing.T) {
	for text, want := range map[string]int{"": 0, "7": 1, "0-41,57": 43, "5-3": 0, "a,-1,2-b,3": 1, "0-98,100": 100, "0-98,100,101": 100,
		"0-9000000000000000000": 100, "0-9223372036854775807,0-9223372036854775807": 100} {
		if got := CountRanks(text, 100); got != want {
			t.Errorf("%q has %d ranks, want %d", text, got, want)
		}
	}
}
