package board

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
)

// Activity is the report of a TensorBoard's proxy about its requests.
type Activity struct {
	// Requests is the number of requests since the proxy started.
	Requests int64 `json:"requests"`
	// QuietSeconds is the time in seconds since the end of the last request or, if there was none, since the start of
	// the proxy. It is 0 while a request is in progress.
	QuietSeconds float64 `json:"quietSeconds"`
}

// Idleness defines when a TensorBoard counts as idle and when an idle one is suspended.
type Idleness struct {
	// After is the time without a request after which a TensorBoard is idle. Zero disables idleness and suspension.
	After time.Duration
	// SuspendAfter is the time for which a TensorBoard must be idle before it is suspended. Zero means never.
	SuspendAfter time.Duration
}

// While a TensorBoard is active, its next probe is at the time at which it can become idle. While it is idle, the time
// between two probes is a twelfth of Idleness.After, at least minWait and at most maxWait, but a probe is never later
// than the time of suspension. A failed probe is repeated after retry.
const (
	minWait = 100 * time.Millisecond
	maxWait = 5 * time.Minute
	retry   = 10 * time.Second
)

// idleness adds the condition Idle, and decides whether to suspend the TensorBoard and when to probe it again. It does
// nothing if idleness is disabled.
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
		idleWhileSuspended(old, &c)
	case !Ready(seen.Pod):
		// A TensorBoard that does not run gets no requests, so its condition does not change.
		if isNew(old) {
			c.Status, c.Reason, c.Message = metav1.ConditionUnknown, tensorboard.ReasonNotRunning, "It does not run yet."
		}
	case seen.Activity == nil:
		n.ProbeAfter = retry
		idleWithoutActivity(old, &c, seen.ProbeError)
	default:
		n.idleFromActivity(old, &c, seen, o)
	}
	n.set(tb, c, seen.Now)
}

// isNew reports whether old, the last condition Idle, says nothing about the time since the creation or the last
// resumption of the TensorBoard: it is nil, or its reason is Suspended.
func isNew(old *tensorboard.Condition) bool {
	return old == nil || old.Reason == tensorboard.ReasonSuspended
}

// idleWhileSuspended sets the condition Idle of a suspended TensorBoard.
func idleWhileSuspended(old, c *tensorboard.Condition) {
	c.Status, c.Reason = metav1.ConditionFalse, tensorboard.ReasonSuspended
	switch {
	case old != nil && old.Reason == tensorboard.ReasonSuspended:
	case old != nil && old.Status == metav1.ConditionTrue:
		c.Message = fmt.Sprintf("It was suspended when it had been idle since %s.", old.LastTransitionTime.UTC().Format(time.RFC3339))
	default:
		c.Message = "It was suspended."
	}
}

// idleWithoutActivity sets the condition Idle if the pod's activity is unknown. The condition keeps its status. If
// isNew, the status becomes Unknown.
func idleWithoutActivity(old, c *tensorboard.Condition, problem error) {
	if isNew(old) {
		c.Status = metav1.ConditionUnknown
	}
	c.Reason, c.Message = tensorboard.ReasonProbeFailed, "Its pod does not report the time of its last request."
	if problem != nil {
		c.Message += " " + problem.Error()
	}
}

// idleFromActivity sets the condition Idle from the pod's activity, and decides when to probe again and whether to
// suspend the TensorBoard.
func (n *Next) idleFromActivity(old, c *tensorboard.Condition, seen Seen, o Idleness) {
	quiet := time.Duration(seen.Activity.QuietSeconds * float64(time.Second))
	was := old != nil && old.Status == metav1.ConditionTrue
	now := metav1.NewTime(seen.Now)
	c.LastProbeTime = &now
	// A new pod has had no requests yet. It does not make an idle TensorBoard active.
	if quiet < o.After && (!was || seen.Activity.Requests > 0) {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, tensorboard.ReasonActive, fmt.Sprintf("It has had a request, or was started, within %s.", o.After)
		n.ProbeAfter = max(o.After-quiet, minWait)
		return
	}
	c.Status, c.Reason, c.Message = metav1.ConditionTrue, tensorboard.ReasonNoRequests, fmt.Sprintf("It has had no request for %s or longer.", o.After)
	n.ProbeAfter = min(max(o.After/12, minWait), maxWait)
	if o.SuspendAfter == 0 {
		return
	}
	left := o.SuspendAfter
	if was {
		left -= seen.Now.Sub(old.LastTransitionTime.Time)
	}
	n.Suspend = left <= 0
	n.ProbeAfter = max(min(n.ProbeAfter, left), minWait)
}
