package board

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
)

// Activity is what the proxy of a TensorBoard tells of the requests that it has passed on.
type Activity struct {
	// Requests counts those since the proxy started.
	Requests int64 `json:"requests"`
	// QuietSeconds is the time since the end of the last one or, where there was none, since the proxy started. It is 0
	// while one is under way.
	QuietSeconds float64 `json:"quietSeconds"`
}

// Idleness says when a TensorBoard counts as idle and what follows.
type Idleness struct {
	// After is the time without a request after which it is idle; 0 turns all of this off.
	After time.Duration
	// SuspendAfter is the time of idleness after which it is suspended; 0 stands for never.
	SuspendAfter time.Duration
}

// Looks at one that is idle are mostWait apart, or less where idleness comes fast. A look that failed comes again after retry.
const (
	leastWait = 100 * time.Millisecond
	mostWait  = 5 * time.Minute
	retry     = 10 * time.Second
)

// idleness adds the condition Idle and what follows from it.
func (n *Next) idleness(tb *tensorboard.TensorBoard, seen Seen, o Idleness) {
	if o.After == 0 {
		return
	}
	old := condition(&tb.Status, tensorboard.Idle)
	c := tensorboard.Condition{Type: tensorboard.Idle}
	if old != nil {
		c = *old
	}
	switch {
	case Suspended(tb):
		suspended(old, &c)
	case !Ready(seen.Pod):
		// Nothing could be asked for meanwhile: what was true of one that ran stays true.
		if isNew(old) {
			c.Status, c.Reason, c.Message = metav1.ConditionUnknown, tensorboard.ReasonNotRunning, "It does not run yet."
		}
	case seen.Activity == nil:
		n.ProbeAfter = retry
		unasked(old, &c, seen.ProbeError)
	default:
		n.asked(old, &c, seen, o)
	}
	n.set(tb, c, seen.Now)
}

// isNew tells whether a TensorBoard has not run before, or not since it was suspended.
func isNew(old *tensorboard.Condition) bool {
	return old == nil || old.Reason == tensorboard.ReasonSuspended
}

// suspended is idleness where nothing is to run.
func suspended(old, c *tensorboard.Condition) {
	c.Status, c.Reason = metav1.ConditionFalse, tensorboard.ReasonSuspended
	switch {
	case old != nil && old.Reason == tensorboard.ReasonSuspended:
	case old != nil && old.Status == metav1.ConditionTrue:
		c.Message = fmt.Sprintf("It was suspended when it had been idle since %s.", old.LastTransitionTime.UTC().Format(time.RFC3339))
	default:
		c.Message = "It was suspended."
	}
}

// unasked is idleness where the pod does not tell. What was known stays.
func unasked(old, c *tensorboard.Condition, fault error) {
	if isNew(old) {
		c.Status = metav1.ConditionUnknown
	}
	c.Reason, c.Message = tensorboard.ReasonProbeFailed, "Its pod does not tell when the last request came."
	if fault != nil {
		c.Message += " " + fault.Error()
	}
}

// asked is idleness where the pod has told of its requests.
func (n *Next) asked(old, c *tensorboard.Condition, seen Seen, o Idleness) {
	quiet := time.Duration(seen.Activity.QuietSeconds * float64(time.Second))
	was := old != nil && old.Status == metav1.ConditionTrue
	now := metav1.NewTime(seen.Now)
	c.LastProbeTime = &now
	// A new pod has had no request of its own yet. That does not make one that was idle less so.
	if quiet < o.After && (!was || seen.Activity.Requests > 0) {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, tensorboard.ReasonActive, fmt.Sprintf("It has had a request, or was started, within %s.", o.After)
		n.ProbeAfter = max(o.After-quiet, leastWait)
		return
	}
	c.Status, c.Reason, c.Message = metav1.ConditionTrue, tensorboard.ReasonNoRequests, fmt.Sprintf("It has had no request for %s or longer.", o.After)
	n.ProbeAfter = min(max(o.After/12, leastWait), mostWait)
	if o.SuspendAfter == 0 {
		return
	}
	left := o.SuspendAfter
	if was {
		left -= seen.Now.Sub(old.LastTransitionTime.Time)
	}
	n.Suspend = left <= 0
	n.ProbeAfter = max(min(n.ProbeAfter, left), leastWait)
}
