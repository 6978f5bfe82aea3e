package progress

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/observed"
)

// impossible returns the scheduler's message about a job that could not start even if nothing else ran. It returns an
// empty text for any other job.
func impossible(s *batch.JobStatus) string {
	c := observed.Condition(s, batch.JobRunningCondition)
	if c.Status == metav1.ConditionTrue || c.Reason != batch.ReasonImpossible {
		return ""
	}
	return c.Message
}

const impossibleNotice = "can never start with the present quota and nodes; it waits until they change"

// takeImpossible warns when the scheduler begins to report that a job can never start. If Options.FailIfImpossible is
// set, it returns an error instead.
func (d *display) takeImpossible(t *track) error {
	message := impossible(t.Status())
	defer func() { t.impossible = message != "" }()
	switch {
	case message == "":
		return nil
	case d.options.FailIfImpossible:
		return &kit.ExitError{Code: kit.ExitFailed, Err: fmt.Errorf("%s can never start with the present quota and nodes: %s\nIt still waits. To remove it: %s",
			t.Ref(), message, d.Again(d.cluster, t.GetNamespace(), "delete "+t.Ref()))}
	case !t.impossible:
		d.report(t.Ref(), impossibleNotice, view.Bad)
	}
	return nil
}
