package view

import (
	"slices"
	"testing"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/observed"
)

// withBoard returns the input of a job whose TensorBoard has a given state.
func withBoard(t *testing.T, state batch.DependentStatus) *JobInput {
	t.Helper()
	kind, err := kinds.ByName("PyTorchTrainingJob")
	if err != nil {
		t.Fatal(err)
	}
	j := &batch.PyTorchTrainingJob{}
	j.Namespace, j.Name = "default", "mnist"
	j.Spec.TensorBoardSpec = &tensorboard.TensorBoardSpec{}
	j.Status.TensorBoard = &state
	return &JobInput{Job: &observed.Job{Kind: &kind, Object: j}, Now: noon, Taken: func(string) bool { return false }}
}

func boardFactOf(p JobPage) string {
	if i := slices.IndexFunc(p.Facts, func(f Fact) bool { return f.Name == boardFact }); i >= 0 {
		return p.Facts[i].Text
	}
	return ""
}

// TestInstallationsShowTheCommandOfTensorBoards verifies that an installed console shows a command instead of opening
// TensorBoards: pages that other users control must not be served under the console's address.
func TestInstallationsShowTheCommandOfTensorBoards(t *testing.T) {
	p := JobOf(withBoard(t, batch.DependentStatus{Ready: true, Reason: tensorboard.ReasonRunning}), "")
	if p.Board != nil || boardFactOf(p) != `ready: "t9k tensorboard mnist" shows it` {
		t.Errorf("the page opens it by %+v and says %q", p.Board, boardFactOf(p))
	}
}

func TestPageOpensTheTensorBoard(t *testing.T) {
	for name, c := range map[string]struct {
		state                batch.DependentStatus
		title, command, fact string
		asks                 bool
	}{
		"ready": {batch.DependentStatus{Ready: true, Reason: tensorboard.ReasonRunning}, "Open TensorBoard",
			"t9k tensorboard -n default pytorchtrainingjob/mnist", "ready", false},
		"starting": {batch.DependentStatus{Reason: tensorboard.ReasonStarting, Note: "Its pod starts."}, "Open TensorBoard",
			"t9k tensorboard -n default pytorchtrainingjob/mnist", "Starting: Its pod starts.", false},
		"suspended": {batch.DependentStatus{Reason: tensorboard.ReasonSuspended, Note: "Nobody looks."}, "Resume TensorBoard",
			"t9k tensorboard -n default pytorchtrainingjob/mnist --resume", "Suspended: Nobody looks.", true},
	} {
		t.Run(name, func(t *testing.T) {
			in := withBoard(t, c.state)
			in.OpensBoards = true
			p := JobOf(in, "")
			if p.Board == nil {
				t.Fatal("the page opens no TensorBoard")
			}
			if b := p.Board; b.Title != c.title || b.Command != c.command || b.Asks != c.asks || boardFactOf(p) != c.fact {
				t.Errorf("%+v with the fact %q", b, boardFactOf(p))
			}
		})
	}
}
