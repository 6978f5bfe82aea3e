package observed

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
)

// Board returns the state of the TensorBoard that a job specifies; nil if it specifies none. A TensorBoard that does
// not exist yet is starting.
func Board(j *Job) *batch.DependentStatus {
	if j.Kind.Training == nil {
		return nil
	}
	spec, status := j.Kind.Training(j.Object)
	if spec.TensorBoardSpec != nil && status.TensorBoard == nil {
		return &batch.DependentStatus{Type: corev1.EventTypeNormal, Reason: tensorboard.ReasonStarting, Note: "It does not exist yet."}
	}
	return status.TensorBoard
}

// BoardText returns b, the state of the TensorBoard of the job called name, as text. b must not be nil.
func BoardText(name string, b *batch.DependentStatus) string {
	if b.Ready {
		return fmt.Sprintf("ready: \"t9k tensorboard %s\" shows it", name)
	}
	return b.Reason + ": " + OneLine(b.Note)
}
