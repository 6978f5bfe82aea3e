package view

import (
	"fmt"

	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/observed"
)

// boardFact is the name of the fact about the TensorBoard.
const boardFact = "TensorBoard"

// BoardAction opens the TensorBoard of a job in a new tab.
type BoardAction struct {
	Action
	// Asks is true if the TensorBoard is suspended, because the action then resumes it and asks for confirmation.
	Asks bool
}

// BoardOf returns the action that opens the TensorBoard of a job; nil if the job has none.
func BoardOf(j *observed.Job) *BoardAction {
	b := observed.Board(j)
	if b == nil {
		return nil
	}
	a := &BoardAction{Action: Action{Verb: "tensorboard", Title: "Open TensorBoard", Command: fmt.Sprintf("t9k tensorboard -n %s %s", j.GetNamespace(), j.Ref())}}
	if b.Reason == tensorboard.ReasonSuspended {
		a.Asks, a.Title, a.Effect = true, "Resume TensorBoard", "Starts the TensorBoard again, and opens it in a new tab once it answers."
		a.Command += " --resume"
	}
	return a
}

// boardText returns the state of the job's TensorBoard as text; empty if the job has none. If the page can open the
// TensorBoard, the text does not explain how to open it.
func (in *JobInput) boardText() string {
	b := observed.Board(in.Job)
	switch {
	case b == nil:
		return ""
	case b.Ready && in.OpensBoards:
		return "ready"
	}
	return observed.BoardText(in.Job.GetName(), b)
}
