package engine

import (
	"time"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// addRun adds the duration of a run that has just ended to status.runSeconds. For a job that ends without having been
// observed running, it uses unseenRun. Runs in debug mode do not count.
func (p *pass) addRun(next *batch.JobStatus) {
	switch {
	case p.finished || p.old.RunMode == batch.RunDebug || conditionTrue(next, batch.JobRunningCondition):
	case conditionTrue(p.old, batch.JobRunningCondition):
		began := condition(p.old, batch.JobRunningCondition).LastTransitionTime
		next.RunSeconds += seconds(p.seen.Now.Sub(began.Time))
	case p.verdict.over() && next.RunSeconds == 0:
		next.RunSeconds = seconds(p.unseenRun())
	}
}

func seconds(d time.Duration) int64 { return max(0, int64(d.Round(time.Second)/time.Second)) }

// unseenRun returns for how long a job ran if its pods ended before they were observed running: from the start of the
// pod that started last to the last end. It returns 0 if a replica has no pod or a pod shows no start.
func (p *pass) unseenRun() time.Duration {
	var began, ended time.Time
	for i := range p.replicas {
		if p.replicas[i].pod == nil {
			return 0
		}
		started, finished := p.replicas[i].role.lifetime(p.replicas[i].pod)
		if started.IsZero() {
			return 0
		}
		if started.After(began) {
			began = started
		}
		if finished.After(ended) {
			ended = finished
		}
	}
	return ended.Sub(began)
}
