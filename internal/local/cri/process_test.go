package cri

import (
	"context"
	"os/exec"
	"testing"
)

// TestProcessCanBeAwaitedAgain verifies that a wait that ended with its context does not end the next wait.
func TestProcessCanBeAwaitedAgain(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	p, err := id.open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := p.wait(ctx); err == nil {
		t.Error("the wait did not end with its context")
	}
	if err := p.kill(t.Context()); err != nil {
		t.Errorf("killing: %v", err)
	}
}
