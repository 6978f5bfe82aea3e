package kinds

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/tensorboard/board"
)

// tensorBoard validates the TensorBoard of a training job.
func (v *validator) tensorBoard(s *tensorboard.TensorBoardSpec, path *field.Path) {
	if s == nil {
		return
	}
	v.errs = append(v.errs, board.Validate(s, path)...)
	if s.Scheduler != nil && s.Scheduler.T9kScheduler != nil {
		v.queueName(s.Scheduler.T9kScheduler.Queue, path.Child("scheduler", "t9kScheduler", "queue"))
	}
}

// ValidateTensorBoard returns the errors in the spec of a TensorBoard that its schema cannot detect.
func ValidateTensorBoard(s *tensorboard.TensorBoardSpec, path *field.Path) field.ErrorList {
	v := &validator{}
	v.tensorBoard(s, path)
	return v.errs
}
