package kinds

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/tensorboard/board"
)

// tensorBoard checks the TensorBoard that a training job asks for.
func (l *lowering) tensorBoard(s *tensorboard.TensorBoardSpec, path *field.Path) {
	if s == nil {
		return
	}
	l.errs = append(l.errs, board.Validate(s, path)...)
	if s.Scheduler != nil && s.Scheduler.T9kScheduler != nil {
		l.queueName(s.Scheduler.T9kScheduler.Queue, path.Child("scheduler", "t9kScheduler", "queue"))
	}
}

// ValidateTensorBoard lists what is wrong with a TensorBoard, of a job or without one, that its schema cannot tell.
func ValidateTensorBoard(s *tensorboard.TensorBoardSpec, path *field.Path) field.ErrorList {
	l := &lowering{}
	l.tensorBoard(s, path)
	return l.errs
}
