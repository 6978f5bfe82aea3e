package kinds

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/tensorboard/board"
)

// tensorBoard checks the TensorBoard that a training job asks for.
func (v *validator) tensorBoard(s *tensorboard.TensorBoardSpec, path *field.Path) {
	if s == nil {
		return
	}
	v.errs = append(v.errs, board.Validate(s, path)...)
	if s.Scheduler != nil && s.Scheduler.T9kScheduler != nil {
		v.queueName(s.Scheduler.T9kScheduler.Queue, path.Child("scheduler", "t9kScheduler", "queue"))
	}
}

// ValidateTensorBoard lists what is wrong with a TensorBoard, of a job or without one, that its schema cannot tell.
func ValidateTensorBoard(s *tensorboard.TensorBoardSpec, path *field.Path) field.ErrorList {
	v := &validator{}
	v.tensorBoard(s, path)
	return v.errs
}
