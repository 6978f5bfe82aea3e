package archive

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
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

// These are the outcomes.
const (
	Succeeded Outcome = "Succeeded"
	Failed    Outcome = "Failed"
	// Evicted means that somebody other than the job ended the pod, such as a preemption or a drain.
	Evicted Outcome = "Evicted"
	// Stopped means that the pod was deleted while it ran, for example because its job was paused or had ended.
	Stopped Outcome = "Stopped"
	// Lost means that the pod ended while nobody recorded it. Its end is when it was last known to run or was missed.
	Lost Outcome = "Lost"
)

// Attempt is the life of one pod of a replica. Times that are not known are zero.
type Attempt struct {
	UID     string `json:"uid"`
	Version int64  `json:"-"`
	Job     string `json:"-"`
	Replica string `json:"replica"`
	Role    string `json:"role"`
	Rank    int    `json:"rank"`
	// Number counts the attempts of a replica from 0, as the label of the pod does. People read its Ordinal.
	Number    int       `json:"attempt"`
	Node      string    `json:"node,omitempty"`
	Created   time.Time `json:"created"`
	Scheduled time.Time `json:"scheduled,omitzero"`
	Started   time.Time `json:"started,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`
	// Outcome is empty while the attempt lasts.
	Outcome  Outcome `json:"outcome,omitempty"`
	ExitCode *int32  `json:"exitCode,omitempty"`
	Cause    string  `json:"cause,omitempty"`
	// Requests are what the pod requests of the node, which it holds from Scheduled to Ended.
	Requests corev1.ResourceList `json:"requests,omitempty"`
	// Pod is the pod as it was last seen, without what no page shows.
	Pod json.RawMessage `json:"-"`
}

// Ordinal returns the number of an attempt as people read and choose it: the first attempt is 1.
func Ordinal(number int) int { return number + 1 }

// AttemptOf returns the record of a pod; nil if the pod belongs to no job.
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
	// Both labels are written by the operator. An older operator did not number the attempts.
	rank, _ := strconv.Atoi(p.Labels[batch.LabelReplicaRank])
	number, _ := strconv.Atoi(p.Labels[batch.LabelReplicaAttempt])
	a := &Attempt{UID: string(p.UID), Version: version, Job: job, Replica: p.Name, Role: p.Labels[batch.LabelReplicaType], Rank: rank, Number: number,
		Node: p.Spec.NodeName, Created: p.CreationTimestamp.UTC(), Scheduled: scheduledAt(p), Requests: resource.PodRequests(p, resource.PodResourcesOptions{}), Pod: pod}
	var over time.Time
	for i := range p.Status.ContainerStatuses {
		state := &p.Status.ContainerStatuses[i].State
		switch {
		case state.Running != nil:
			a.begin(state.Running.StartedAt)
		case state.Terminated != nil:
			a.begin(state.Terminated.StartedAt)
			over = later(over, state.Terminated.FinishedAt.Time)
			if code := state.Terminated.ExitCode; code != 0 && a.ExitCode == nil {
				a.ExitCode, a.Cause = &code, state.Terminated.Reason
			}
		}
	}
	a.end(p, over)
	return a, nil
}

func (a *Attempt) begin(at metav1.Time) {
	if !at.IsZero() && (a.Started.IsZero() || at.Time.Before(a.Started)) {
		a.Started = at.UTC()
	}
}

// end sets the end of an attempt whose pod has ended. over is the end of the last container; zero if it is not known.
func (a *Attempt) end(p *corev1.Pod, over time.Time) {
	disrupted, why := disruption(p)
	ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	switch {
	case ended && !disrupted && observed.Stopped(p):
		a.Outcome, a.Cause = Stopped, ""
	case p.Status.Phase == corev1.PodSucceeded:
		a.Outcome, a.Cause = Succeeded, ""
		if a.ExitCode == nil {
			a.ExitCode = new(int32)
		}
	case p.Status.Phase == corev1.PodFailed && disrupted:
		a.Outcome, a.Cause = Evicted, why
	case p.Status.Phase == corev1.PodFailed:
		a.Outcome, a.Cause = Failed, cmp.Or(p.Status.Reason, a.Cause)
	default:
		a.ExitCode, a.Cause = nil, "" // of a sidecar, or before a restart by the kubelet
		return
	}
	// A pod that the kubelet refused, or that ended with its node, has no container that says when.
	a.Ended = over.UTC()
	if over.IsZero() {
		a.Ended = endedAt(p).UTC()
	}
}

// Follow takes over from the last record of the pod what a newer version of the pod no longer tells: that its deletion
// has ended it.
func (a *Attempt) Follow(last *Attempt) {
	if last.Outcome == Stopped && (a.Outcome == Failed || a.Outcome == Succeeded) {
		a.Outcome, a.Cause = Stopped, ""
	}
}

// MarkDeleted records that the pod is gone, which was noticed at a time. inTime is true if the deletion itself was seen, and
// false if the pod was found missing, perhaps long after its end.
func (a *Attempt) MarkDeleted(p *corev1.Pod, at time.Time, inTime bool) {
	if a.Outcome != "" {
		return
	}
	disrupted, why := disruption(p)
	switch {
	case disrupted:
		a.Outcome, a.Cause = Evicted, why
	case p.DeletionTimestamp != nil || inTime:
		a.Outcome = Stopped
	default:
		a.Outcome = Lost
	}
	a.Ended = at.UTC()
	// The kubelet reports the ends of the containers shortly before it removes the pod.
	var over time.Time
	all := len(p.Status.ContainerStatuses) > 0
	for i := range p.Status.ContainerStatuses {
		t := p.Status.ContainerStatuses[i].State.Terminated
		if t == nil {
			all = false
			continue
		}
		over = later(over, t.FinishedAt.Time)
	}
	switch {
	case all && !over.IsZero():
		a.Ended = over.UTC()
	case !inTime && p.DeletionTimestamp != nil && p.DeletionTimestamp.Time.Before(at):
		a.Ended = p.DeletionTimestamp.UTC()
	}
}

// Held returns for how long the attempt held what it requests, within a span of time.
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

// Same reports whether two records of one pod hold the same, so that the second one needs no writing.
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

// endedAt returns when a pod ended that has no ended containers: when its conditions last changed.
func endedAt(p *corev1.Pod) time.Time {
	at := p.CreationTimestamp.Time
	for _, c := range p.Status.Conditions {
		at = later(at, c.LastTransitionTime.Time)
	}
	return at
}

func disruption(p *corev1.Pod) (disrupted bool, why string) {
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
	if i < 0 {
		return false, ""
	}
	return true, p.Status.Conditions[i].Reason
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// slim returns a pod without what no page shows. Commands and variables are in the job's manifest.
func slim(p *corev1.Pod) *corev1.Pod {
	s := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	s.ObjectMeta = metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: p.UID, ResourceVersion: p.ResourceVersion, CreationTimestamp: p.CreationTimestamp,
		DeletionTimestamp: p.DeletionTimestamp, DeletionGracePeriodSeconds: p.DeletionGracePeriodSeconds, Labels: p.Labels, OwnerReferences: p.OwnerReferences}
	s.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName, SchedulerName: p.Spec.SchedulerName, Containers: names(p.Spec.Containers), InitContainers: names(p.Spec.InitContainers)}
	s.Status = corev1.PodStatus{Phase: p.Status.Phase, Reason: p.Status.Reason, Message: p.Status.Message, StartTime: p.Status.StartTime,
		Conditions: p.Status.Conditions, ContainerStatuses: p.Status.ContainerStatuses, InitContainerStatuses: p.Status.InitContainerStatuses}
	return s
}

func names(all []corev1.Container) []corev1.Container {
	slim := make([]corev1.Container, len(all))
	for i := range all {
		slim[i] = corev1.Container{Name: all[i].Name, Image: all[i].Image, Resources: all[i].Resources}
	}
	return slim
}
