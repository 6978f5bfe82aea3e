package kindtest

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMutationsKeepOddValuesUnchanged verifies that mutations do not modify the odd values: a value that contained
// itself could not be marshalled.
func TestMutationsKeepOddValuesUnchanged(t *testing.T) {
	before := deepCopy(odd).([]any)
	random := rand.New(rand.NewPCG(1, 2))
	for range 2_000 {
		bytes := make(choices, 48)
		for i := range bytes {
			bytes[i] = byte(random.Uint32())
		}
		var value any = map[string]any{"a": map[string]any{"b": "c"}, "d": []any{"e"}}
		for range maxMutations {
			value = mutate(value, &bytes)
		}
		if diff := cmp.Diff(before, odd); diff != "" {
			t.Fatalf("a mutation changed the odd values:\n%s", diff)
		}
	}
}
