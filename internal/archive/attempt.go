package archive

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/resource"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/observed"
)

// Outcome is how an attempt ended.
type Outcome string

// Outcomes of attempts.
const (
	Succeeded Outcome = "Succeeded"
	Failed    Outcome = "Failed"
	// Evicted means that something other than the job terminated the pod, such as a preemption or a drain.
	Evicted Outcome = "Evicted"
	// Stopped means that the pod was deleted before its replica ended, for example because its job was paused or had
	// finished. The pod may never have started.
	Stopped Outcome = "Stopped"
	// Lost means that no recorder saw the pod end. Unless the last observed pod shows when its containers ended, the
	// end is estimated: it is the end of the job or, if the job had not ended, the last time at which a recorder was
	// running.
	Lost Outcome = "Lost"
)

// Attempt is the lifetime of one pod of a replica. Job is the UID of the job, and Replica is the name of the pod,
// which is the same for all attempts of a replica. Unknown times are zero.
type Attempt struct {
	UID     string `json:"uid"`
	Version int64  `json:"-"`
	Job     string `json:"-"`
	Replica string `json:"replica"`
	Role    string `json:"role"`
	Rank    int    `json:"rank"`
	// Number counts the attempts of a replica from 0, as the label of the pod does. It starts again when scaling
	// removes the replica and later adds it again. Users see its Ordinal.
	Number    int       `json:"attempt"`
	Node      string    `json:"node,omitempty"`
	Created   time.Time `json:"created"`
	Scheduled time.Time `json:"scheduled,omitzero"`
	Started   time.Time `json:"started,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`
	// Outcome is empty until the attempt ends.
	Outcome Outcome `json:"outcome,omitempty"`
	// ExitCode is the exit code of the replica, as in engine.PodEnd; nil if there is none.
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Cause is why the attempt failed or was evicted, such as OOMKilled; empty for other outcomes.
	Cause string `json:"cause,omitempty"`
	// Requests are the resources that the pod requests and holds from Scheduled to Ended.
	Requests corev1.ResourceList `json:"requests,omitempty"`
	// Pod is the last observed state of the pod, without the fields that no page shows.
	Pod json.RawMessage `json:"-"`
}

// Ordinal returns the number of an attempt for display and for command lines: the first attempt is 1.
func Ordinal(number int) int { return number + 1 }

// AttemptOf returns the record of a pod; nil if the pod does not belong to a job.
func AttemptOf(p *corev1.Pod) (*Attempt, error) {
	job, _ := JobOfPod(p)
	if job == "" {
		return nil, nil
	}
	version, err := versionOf(p)
	if err != nil {
		return nil, err
	}
	pod, err := json.Marshal(slim(p))
	if err != nil {
		return nil, fmt.Errorf("writing pod %s as JSON: %w", p.Name, err)
	}
	// The operator writes both labels. Older operators did not number the attempts.
	rank, _ := strconv.Atoi(p.Labels[batch.LabelReplicaRank])
	number, _ := strconv.Atoi(p.Labels[batch.LabelReplicaAttempt])
	a := &Attempt{UID: string(p.UID), Version: version, Job: job, Replica: p.Name, Role: p.Labels[batch.LabelReplicaType], Rank: rank, Number: number,
		Node: p.Spec.NodeName, Created: p.CreationTimestamp.UTC(), Scheduled: scheduledAt(p), Requests: resource.PodRequests(p, resource.PodResourcesOptions{}), Pod: pod}
	for i := range p.Status.ContainerStatuses {
		state := &p.Status.ContainerStatuses[i].State
		switch {
		case state.Running != nil:
			a.begin(state.Running.StartedAt)
		case state.Terminated != nil:
			a.begin(state.Terminated.StartedAt)
		}
	}
	a.end(p)
	return a, nil
}

func (a *Attempt) begin(at metav1.Time) {
	if !at.IsZero() && (a.Started.IsZero() || at.Time.Before(a.Started)) {
		a.Started = at.UTC()
	}
}

// end sets the outcome and the end of an attempt whose pod has finished, and does nothing for other attempts. A pod
// holds its resources until all of its containers have ended, even if its replica ended earlier.
func (a *Attempt) end(p *corev1.Pod) {
	if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
		return
	}
	a.settle(p)
	// A pod that the kubelet rejected, or that was lost with its node, has no container status with an end time.
	a.Ended = observed.LastEnd(p).UTC()
	if a.Ended.IsZero() {
		a.Ended = endedAt(p).UTC()
	}
}

// settle sets Outcome, Cause and ExitCode of an attempt whose replica has ended.
func (a *Attempt) settle(p *corev1.Pod) {
	end := observed.End(p)
	a.ExitCode = end.ExitCode
	switch {
	case end.Disrupted:
		a.Outcome, a.Cause = Evicted, end.Reason
	case observed.Stopped(p):
		a.Outcome = Stopped
	case end.Succeeded:
		a.Outcome = Succeeded
	default:
		a.Outcome, a.Cause = Failed, end.Cause()
	}
}

// Follow replaces the outcome Failed or Succeeded by Stopped if the previous record of the pod, last, has the outcome
// Stopped. It then also clears Cause. Once the kubelet has confirmed the end of a pod, the pod does not show that it
// was stopped by its deletion.
func (a *Attempt) Follow(last *Attempt) {
	if last.Outcome == Stopped && (a.Outcome == Failed || a.Outcome == Succeeded) {
		a.Outcome, a.Cause = Stopped, ""
	}
}

// MarkDeleted records that the pod no longer exists. It does nothing if the attempt has ended. at becomes the end of
// the attempt, unless the pod shows when all of its containers ended or, if inTime is false, that its deletion was due
// before at. inTime is true if the recorder saw the deletion, and false if it found the pod missing, perhaps long after
// the pod ended.
func (a *Attempt) MarkDeleted(p *corev1.Pod, at time.Time, inTime bool) {
	if a.Outcome != "" {
		return
	}
	end := observed.End(p)
	disruption := observed.Disruption(p)
	switch {
	case (end.Succeeded || end.Failed) && !observed.Stopped(p):
		a.settle(p) // the pod was deleted while its sidecars ran
	case disruption != nil:
		a.Outcome, a.Cause = Evicted, disruption.Reason
	case p.DeletionTimestamp != nil || inTime:
		a.Outcome = Stopped
	default:
		a.Outcome = Lost
	}
	a.Ended = at.UTC()
	over := allEnded(p)
	switch {
	case !over.IsZero():
		a.Ended = over.UTC()
	case !inTime && p.DeletionTimestamp != nil && p.DeletionTimestamp.Time.Before(at):
		a.Ended = p.DeletionTimestamp.UTC()
	}
}

// allEnded returns when the last of a pod's containers ended; zero unless all of them have ended. The kubelet reports
// the ends of all containers shortly before it removes the pod.
func allEnded(p *corev1.Pod) (over time.Time) {
	for i := range p.Status.ContainerStatuses {
		t := p.Status.ContainerStatuses[i].State.Terminated
		if t == nil {
			return time.Time{}
		}
		over = later(over, t.FinishedAt.Time)
	}
	return over
}

// Held returns how long the attempt held its requested resources between from and to.
func (a *Attempt) Held(from, to time.Time) time.Duration {
	if a.Scheduled.IsZero() {
		return 0
	}
	end := to
	if a.Outcome != "" && a.Ended.Before(to) {
		end = a.Ended
	}
	return max(0, end.Sub(later(a.Scheduled, from)))
}

// Same reports whether two records of one pod have the same node, times, outcome and cause, so that the second one
// need not be written.
func (a *Attempt) Same(b *Attempt) bool {
	return a.Node == b.Node && a.Scheduled.Equal(b.Scheduled) && a.Started.Equal(b.Started) && a.Ended.Equal(b.Ended) && a.Outcome == b.Outcome &&
		a.Cause == b.Cause
}

func scheduledAt(p *corev1.Pod) time.Time {
	if p.Spec.NodeName == "" {
		return time.Time{}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.UTC()
		}
	}
	return p.CreationTimestamp.UTC()
}

// endedAt returns when a pod without terminated containers ended: the time of the last change of its conditions, or
// its creation time if it has no conditions.
func endedAt(p *corev1.Pod) time.Time {
	at := p.CreationTimestamp.Time
	for _, c := range p.Status.Conditions {
		at = later(at, c.LastTransitionTime.Time)
	}
	return at
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// slim returns a copy of a pod without the fields that no page shows. Commands and environment variables are in the
// job's manifest.
func slim(p *corev1.Pod) *corev1.Pod {
	s := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	s.ObjectMeta = metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: p.UID, ResourceVersion: p.ResourceVersion, CreationTimestamp: p.CreationTimestamp,
		DeletionTimestamp: p.DeletionTimestamp, DeletionGracePeriodSeconds: p.DeletionGracePeriodSeconds, Labels: p.Labels, OwnerReferences: p.OwnerReferences}
	s.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName, SchedulerName: p.Spec.SchedulerName, ActiveDeadlineSeconds: p.Spec.ActiveDeadlineSeconds,
		Containers: names(p.Spec.Containers), InitContainers: names(p.Spec.InitContainers)}
	s.Status = corev1.PodStatus{Phase: p.Status.Phase, Reason: p.Status.Reason, Message: p.Status.Message, StartTime: p.Status.StartTime,
		Conditions: p.Status.Conditions, ContainerStatuses: p.Status.ContainerStatuses, InitContainerStatuses: p.Status.InitContainerStatuses}
	return s
}

func names(all []corev1.Container) []corev1.Container {
	slim := make([]corev1.Container, len(all))
	for i := range all {
		slim[i] = corev1.Container{Name: all[i].Name, Image: all[i].Image, Resources: all[i].Resources, RestartPolicy: all[i].RestartPolicy}
	}
	return slim
}
