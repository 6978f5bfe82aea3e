package kinds_test

import (
	"slices"
	"testing"

	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/kinds/kindtest"
)

func TestKinds(t *testing.T) {
	for _, k := range kinds.All {
		t.Run(k.Name, func(t *testing.T) { kindtest.Check(t, k, manifests(t)) })
	}
}

func FuzzConvert(f *testing.F) {
	kindtest.Fuzz(f, kinds.All, manifests(f))
}

func manifests(t testing.TB) []kindtest.Manifest {
	return slices.Concat(kindtest.Manifests(t, testdata, "testdata/good"), kindtest.Manifests(t, testdata, "testdata/bad"))
}

func TestByNameFindsEachKind(t *testing.T) {
	for _, k := range kinds.All {
		if found, err := kinds.ByName(k.Name); err != nil || found.Plural != k.Plural {
			t.Errorf("%s is found as %s: %v", k.Name, found.Name, err)
		}
	}
	if _, err := kinds.ByName("Job"); err == nil {
		t.Error("a batch/v1 Job was found")
	}
}
