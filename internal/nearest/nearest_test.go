package nearest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNames(t *testing.T) {
	names := []string{"mnist", "mnist-large", "resnet", "bert", "a"}
	for _, test := range []struct {
		wanted string
		n      int
		want   []string
	}{
		{"minst", 3, []string{"mnist"}},
		{"mnits", 3, []string{"mnist"}},
		{"mnst", 3, []string{"mnist"}},
		{"mni", 3, []string{"mnist", "mnist-large"}},
		{"mni", 1, []string{"mnist"}},
		{"Bert", 3, []string{"bert"}},
		{"resnet5", 3, []string{"resnet"}},
		{"gpt", 3, nil},
		{"", 3, []string{"a"}},
	} {
		if diff := cmp.Diff(test.want, Names(test.wanted, names, test.n)); diff != "" {
			t.Errorf("Names(%q): (-want +got)\n%s", test.wanted, diff)
		}
	}
}

func TestOneOff(t *testing.T) {
	names := []string{"rank", "type", "replicas[worker]"}
	for wanted, want := range map[string]string{
		"rnak": "rank", "rnk": "rank", "rankk": "rank", "tank": "rank", "Rank": "rank", "replica[worker]": "replicas[worker]",
		"rank": "", "date": "", "kanr": "", "": "", "RANK": "",
	} {
		if got := OneOff(wanted, names); got != want {
			t.Errorf("OneOff(%q) = %q, want %q", wanted, got, want)
		}
	}
}
