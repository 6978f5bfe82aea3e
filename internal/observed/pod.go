package observed

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
)

// End returns how a pod ended, by the rules of its kind of job.
func End(p *corev1.Pod) engine.PodEnd { return engine.EndOf(p, kinds.MainContainer(p)) }

// LastEnd returns when the last of a pod's containers that have ended did so, init containers included; zero if none has.
func LastEnd(p *corev1.Pod) (last time.Time) {
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if t := c.State.Terminated; t != nil && t.FinishedAt.After(last) {
			last = t.FinishedAt.Time
		}
	}
	return last
}

// Disruption returns the condition of a component that disrupts the pod, for example by an eviction; nil if there is
// none.
func Disruption(p *corev1.Pod) *corev1.PodCondition {
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
	if i < 0 {
		return nil
	}
	return &p.Status.Conditions[i]
}

// Stopped reports whether a pod that has ended was ended by its deletion, for example because its job was paused, and
// not by itself. A pod that had ended when somebody deleted it has no grace period; nor has any pod once its kubelet
// has confirmed its end. Times have a resolution of one second, and an end within the same second counts as caused by
// the deletion.
func Stopped(p *corev1.Pod) bool {
	if p.DeletionTimestamp == nil || p.DeletionGracePeriodSeconds == nil || *p.DeletionGracePeriodSeconds == 0 {
		return false
	}
	finished := End(p).Finished
	asked := p.DeletionTimestamp.Add(-time.Duration(*p.DeletionGracePeriodSeconds) * time.Second)
	return !finished.IsZero() && !finished.Before(asked)
}
