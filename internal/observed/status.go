package observed

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// Condition returns the condition of a type; the zero value if it is missing.
func Condition(s *batch.JobStatus, t batch.JobConditionType) batch.JobCondition {
	for _, c := range s.Conditions {
		if c.Type == t {
			return c
		}
	}
	return batch.JobCondition{}
}

// Finished reports whether a job has finished, and whether it has succeeded.
func Finished(s *batch.JobStatus) (finished, succeeded bool) {
	succeeded = Condition(s, batch.JobCompleted).Status == metav1.ConditionTrue
	return succeeded || Condition(s, batch.JobFailedCondition).Status == metav1.ConditionTrue, succeeded
}

// Explain returns, in one line, why a job is in its phase. It returns an empty string if the job has no conditions yet,
// and if the job is neither finished, paused nor in debug mode and all its replicas run or have ended.
func Explain(s *batch.JobStatus) string {
	finished, succeeded := Finished(s)
	switch {
	case succeeded:
		return message(Condition(s, batch.JobCompleted))
	case finished:
		return message(Condition(s, batch.JobFailedCondition))
	case s.Phase == batch.JobPaused:
		return message(Condition(s, batch.JobPausedCondition))
	}
	c := Condition(s, batch.JobRunningCondition)
	if a := &s.Aggregate; c.Reason == batch.ReasonReplicasRunning && a.Running+a.Succeeded+a.Failed >= Total(s) {
		return ""
	}
	return message(c)
}

func message(c batch.JobCondition) string {
	if c.Message == "" {
		return string(c.Reason)
	}
	return OneLine(c.Message)
}

// OneLine replaces all white space between the words of a message by single spaces, so that the message cannot break a
// table or a screen that is redrawn.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Total returns the number of replicas of a job: the sum over all phases.
func Total(s *batch.JobStatus) int32 {
	a := &s.Aggregate
	return a.Creating + a.Pending + a.Running + a.Succeeded + a.Failed + a.Unknown + a.Deleted
}

// RunTime is the time for which a job has run. It grows while Since is set.
type RunTime struct {
	// Before is the total duration of the completed runs.
	Before time.Duration
	// Since is the start of the current run; zero if there is none.
	Since time.Time
}

// At returns the total time as of now.
func (r RunTime) At(now time.Time) time.Duration {
	if r.Since.IsZero() {
		return r.Before
	}
	return r.Before + max(0, now.Sub(r.Since))
}

// Ran returns the time for which a job has run, without the time in debug mode.
func Ran(s *batch.JobStatus) RunTime {
	ran := RunTime{Before: time.Duration(s.RunSeconds) * time.Second}
	if c := Condition(s, batch.JobRunningCondition); c.Status == metav1.ConditionTrue && s.RunMode != batch.RunDebug {
		ran.Since = c.LastTransitionTime.Time
	}
	return ran
}

// RankOf returns the rank, which is the number at the end of a replica's name; -1 if there is none.
func RankOf(name string) int {
	rank, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	if err != nil {
		return -1
	}
	return rank
}

// ExitText returns as text the first exit code other than 0 of a replica's containers, with the name of the container
// if there are several. It is empty if there is none or if the replica has succeeded.
func ExitText(r *batch.ReplicaStatus) string {
	if r.Phase == batch.ReplicaSucceeded { // the exit codes of sidecars do not count
		return ""
	}
	for _, c := range r.Containers {
		if c.ExitCode == nil || *c.ExitCode == 0 {
			continue
		}
		if len(r.Containers) == 1 {
			return fmt.Sprintf("exit code %d", *c.ExitCode)
		}
		return fmt.Sprintf("%s: exit code %d", c.Name, *c.ExitCode)
	}
	return ""
}

// Detail returns details of a replica that its phase does not show: the reason and the exit code; empty if there are
// none.
func Detail(r *batch.ReplicaStatus) string {
	parts := make([]string, 0, 2)
	if r.Reason != "" {
		parts = append(parts, OneLine(r.Reason))
	}
	if text := ExitText(r); text != "" {
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// PhaseOrder lists the phases of replicas, the most urgent first.
var PhaseOrder = []batch.ReplicaPhase{
	batch.ReplicaFailed, batch.ReplicaUnknown, batch.ReplicaPending, batch.ReplicaCreating, batch.ReplicaDeleted,
	batch.ReplicaRunning, batch.ReplicaSucceeded,
}

// CountPhases returns the number of replicas of a role by phase, and the sum. It includes the replicas that the status
// does not list one by one: at most math.MaxInt32 for each entry, because anybody may have written the status.
func CountPhases(task *batch.Tasks) (count map[batch.ReplicaPhase]int, sum int) {
	count = map[batch.ReplicaPhase]int{}
	for k := range task.Replicas {
		count[task.Replicas[k].Phase]++
		sum++
	}
	for _, o := range task.Omitted {
		n := engine.CountRanks(o.Ranks, math.MaxInt32)
		count[o.Phase] += n
		sum += n
	}
	return count, sum
}

// Decides returns the replica whose result alone is the result of the job, as ROLE-RANK; empty if there is none. n may
// be nil.
func Decides(n *engine.Job) string {
	if n == nil || len(n.Success) != 1 || len(n.Failure) != 1 || len(n.Success[0].Members) != 1 ||
		!slices.Equal(n.Success[0].Members, n.Failure[0].Members) {
		return ""
	}
	m := n.Success[0].Members[0]
	return fmt.Sprintf("%s-%d", n.Roles[m.Role].Type, m.Rank)
}
