package kinds

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestShareDistributesReplicas(t *testing.T) {
	for _, c := range []struct {
		name    string
		n       int
		weights []int
		want    []int
	}{
		{"one role", 5, []int{1}, []int{5}},
		{"even", 6, []int{1, 1, 1}, []int{2, 2, 2}},
		{"equal remainders go to the earlier role", 7, []int{1, 1, 1}, []int{3, 2, 2}},
		{"the largest remainder", 10, []int{3, 3, 1}, []int{4, 4, 2}},
		{"by weight", 8, []int{1, 3}, []int{2, 6}},
		{"each role with a weight gets one", 4, []int{100, 1, 1}, []int{2, 1, 1}},
		{"while there are enough", 2, []int{1, 1, 1}, []int{1, 1, 0}},
		{"the first role before all others", 1, []int{1, 100}, []int{1, 0}},
		{"without a weight: none", 4, []int{1, 0, 1}, []int{2, 0, 2}},
		{"but for the master", 4, []int{0, 1, 1}, []int{1, 1, 2}},
		{"alone, the master has it", 1, []int{0, 1}, []int{1, 0}},
		{"no weights at all", 3, []int{0, 0}, []int{3, 0}},
		{"large weights", 9999, []int{1_000_000, 1}, []int{9998, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := share(c.n, c.weights); !slices.Equal(got, c.want) {
				t.Errorf("%d by %v is %v, want %v", c.n, c.weights, got, c.want)
			}
		})
	}
}

// TestShareHoldsForAnyWeights verifies that, for any weights, all replicas are distributed, the first role gets at
// least one, any other role without weight gets none, a role with a weight gets none only if there are too few
// replicas, and every role is within rounding of its share, or below it by the replicas that roles with small shares
// got.
func TestShareHoldsForAnyWeights(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		n, weights, total, weighty := 1+random.IntN(200), make([]int, 1+random.IntN(6)), 0, 0
		for i := range weights {
			weights[i] = random.IntN([]int{2, 5, 1_000_001}[random.IntN(3)])
			total += weights[i]
			if weights[i] > 0 {
				weighty++
			}
		}
		got := share(n, weights)
		sum, small := 0, 0
		for i, s := range got {
			sum += s
			if weights[i] == 0 && i > 0 && s > 0 || weights[i] > 0 && s == 0 && n > weighty {
				t.Fatalf("%d by %v is %v: role %d", n, weights, got, i)
			}
			if total > 0 && weights[i]*n < total {
				small++ // roles with small shares may get more
			}
		}
		for i, s := range got {
			if total > 0 && (s < n*weights[i]/total-small || s > n*weights[i]/total+1) {
				t.Fatalf("%d by %v is %v: role %d is far from its share", n, weights, got, i)
			}
		}
		if sum != n || got[0] < 1 {
			t.Fatalf("%d by %v is %v", n, weights, got)
		}
	}
}
