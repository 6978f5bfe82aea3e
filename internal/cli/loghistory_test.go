package cli

import "testing"

func TestWhatAnEventSaysOfAReplica(t *testing.T) {
	const several = `Restarting: mnist-worker-1 ended: its command cannot be started: exec: "a, b": no such file (restart 1 of 2), ` +
		`mnist-worker-10 ended with exit code 3 (restart 1 of 2) and 4 more.`
	for _, test := range []struct{ name, message, want string }{
		{"mnist-worker-1", several, `mnist-worker-1 ended: its command cannot be started: exec: "a, b": no such file (restart 1 of 2)`},
		{"mnist-worker-10", several, "mnist-worker-10 ended with exit code 3 (restart 1 of 2)"},
		{"mnist-worker-0", several, ""},
		{"mnist-worker-0", "Replaced without charge, after a disruption: mnist-worker-0 (Evicted).", "mnist-worker-0 (Evicted)"},
	} {
		if got := about("mnist", test.name, test.message); got != test.want {
			t.Errorf("of %s: %q, want %q", test.name, got, test.want)
		}
	}
}
