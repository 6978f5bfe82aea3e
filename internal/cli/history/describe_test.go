package history

import (
	"slices"
	"strings"
	"testing"

	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/cli/view"
)

func TestAttemptsCountFromOne(t *testing.T) {
	table := strings.Join(attempts([]archive.AttemptDetails{
		{Attempt: archive.Attempt{Role: "w", Number: 0, Outcome: archive.Failed}},
		{Attempt: archive.Attempt{Role: "w", Number: 1}},
	}).Lines(view.Style{}, "", 0), "\n")
	for i, want := range []string{"REPLICA ATTEMPT", "w-0 1", "w-0 2"} {
		if line := strings.Fields(strings.Split(table, "\n")[i]); strings.Join(line[:2], " ") != want {
			t.Errorf("line %d is %q, want it to begin with %s", i, line, want)
		}
	}
	got := merged([]archive.LogText{
		{Role: "w", Container: "main", Text: "2026-01-01T12:00:01Z first\nno time\n"},
		{Role: "w", Attempt: 1, Container: "main", Text: "2026-01-01T12:00:09Z again\n"},
		{Role: "w", Rank: 1, Container: "main", Text: "2026-01-01T12:00:02Z other\n"},
		{Role: "w", Rank: 1, Attempt: 1, Container: "side", Text: "2026-01-01T12:00:10Z beside\n"},
	}, false)
	want := []string{"[w-0] first", "[w-0] no time", "[w-1/main] other", "[w-0#2] again", "[w-1/side#2] beside"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
