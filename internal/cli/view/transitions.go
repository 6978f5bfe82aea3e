package view

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/observed"
)

// Transition is a change of a job or of some of its replicas.
type Transition struct {
	// Who is the job, a replica (ROLE-RANK) or several replicas of a role (ROLE-[RANKS]).
	Who string
	// What describes the change in one line.
	What   string
	Colour Colour
}

// Line renders a transition after the time at which it was seen.
func (t Transition) Line(at string, st Style, whoWidth int) string {
	return fmt.Sprintf("%s  %-*s  %s", at, whoWidth, t.Who, st.Paint(t.Colour, t.What))
}

// grouped is the smallest number of replicas with the same transition that share one line.
const grouped = 4

// Transitions returns the changes between two states of a job. If the first state is nil, it counts as empty.
func Transitions(ref string, old, now *batch.JobStatus) []Transition {
	if old == nil {
		old = &batch.JobStatus{}
	}
	all := replicaTransitions(old, now)
	if now.Selector != "" && old.Replicas > 0 && now.Replicas > 0 && old.Replicas != now.Replicas {
		what := fmt.Sprintf("scaled from %d to %s", old.Replicas, Count(int(now.Replicas), "replica"))
		all = append([]Transition{{Who: ref, What: what}}, all...)
	}
	if t, ok := JobTransition(ref, old, now); ok {
		all = append(all, t)
	}
	return all
}

// JobTransition returns the change of a job's phase, or of the reason why it waits, between two states. It returns
// false if neither has changed or if the job has no phase yet. If the first state is nil, it counts as empty.
func JobTransition(ref string, old, now *batch.JobStatus) (Transition, bool) {
	if old == nil {
		old = &batch.JobStatus{}
	}
	if now.Phase == "" || old.Phase == now.Phase && waitsFor(old) == waitsFor(now) {
		return Transition{}, false
	}
	what := string(now.Phase)
	if why := observed.Explain(now); why != "" {
		what += ": " + why
	}
	return Transition{Who: ref, What: what, Colour: phaseColour(string(now.Phase))}, true
}

// waitsFor returns why a job does not run, if a user can do something about it. It returns an empty text for other
// reasons, such as the creation of replicas, whose messages change with every replica that runs.
func waitsFor(s *batch.JobStatus) string {
	c := observed.Condition(s, batch.JobRunningCondition)
	switch c.Reason {
	case batch.ReasonUnschedulable, batch.ReasonImpossible, batch.ReasonNotStarted, batch.ReasonNameTaken, batch.ReasonCreateRefused:
		if c.Status != metav1.ConditionTrue {
			return string(c.Reason) + c.Message
		}
	}
	return ""
}

// change is the change of a replica without its rank. Replicas with equal changes share a line.
type change struct {
	role, what string
	colour     Colour
}

func replicaTransitions(old, now *batch.JobStatus) []Transition {
	before := map[string]*batch.ReplicaStatus{}
	for i := range old.Tasks {
		for k := range old.Tasks[i].Replicas {
			r := &old.Tasks[i].Replicas[k]
			before[r.Name] = r
		}
	}
	var order []change
	ranks := map[change][]int{}
	for _, r := range listed(now) {
		what, colour := replicaChange(before[r.Name], r.ReplicaStatus)
		if what == "" {
			continue
		}
		c := change{r.role, what, colour}
		if len(ranks[c]) == 0 {
			order = append(order, c)
		}
		ranks[c] = append(ranks[c], r.rank)
	}
	var all []Transition
	for _, c := range order {
		if n := len(ranks[c]); n >= grouped {
			all = append(all, Transition{Several(c.role, ranks[c]), fmt.Sprintf("%s (%d replicas)", c.what, n), c.colour})
			continue
		}
		for _, rank := range ranks[c] {
			all = append(all, Transition{fmt.Sprintf("%s-%d", c.role, rank), c.what, c.colour})
		}
	}
	return all
}

// replicaChange returns the change of a replica as text; empty if the change does not need a line.
func replicaChange(old, now *batch.ReplicaStatus) (string, Colour) {
	colour := phaseColour(string(now.Phase))
	switch {
	case old == nil && now.Phase == batch.ReplicaCreating:
		return firstSeen(now), colour
	case old != nil && now.Attempt > old.Attempt:
		return replacement(old, now), colour
	case old != nil && now.Phase == old.Phase && (now.Reason == old.Reason || now.Reason == ""):
		return "", Plain
	case now.Phase == batch.ReplicaRunning && now.NodeName != "":
		return string(now.Phase) + " on " + now.NodeName, colour
	case now.Phase == batch.ReplicaRunning:
		return string(now.Phase), colour
	}
	return join(string(now.Phase), observed.Detail(now)), colour
}

// firstSeen returns a text about a replica that is first seen while it is being created; empty if it does not need a
// line.
func firstSeen(now *batch.ReplicaStatus) string {
	switch {
	case now.RestartCount > 0: // it restarted before the first observation
		return replacement(&batch.ReplicaStatus{}, now)
	case now.Reason == "":
		return ""
	}
	return join(string(now.Phase), observed.Detail(now))
}

// replacement returns a text about the new pod of a replica and the reason for it.
func replacement(old, now *batch.ReplicaStatus) string {
	what := fmt.Sprintf("replaced, no restart counted, attempt %d", now.Attempt+1)
	if now.RestartCount > old.RestartCount {
		what = fmt.Sprintf("restart %d", now.RestartCount)
		if code := endedWith(old, now); code != "" {
			what += " after " + code
		}
	}
	if now.Phase != batch.ReplicaCreating {
		what += ", " + string(now.Phase)
	}
	return what
}

// endedWith returns the exit code that led to a restart, as text. While the new pod is being created, the status may
// still have the exit code of the old pod.
func endedWith(old, now *batch.ReplicaStatus) string {
	if code := observed.ExitText(now); code != "" && now.Phase == batch.ReplicaCreating {
		return code
	}
	return observed.ExitText(old)
}

func join(what, detail string) string {
	if detail == "" {
		return what
	}
	return what + ": " + detail
}
