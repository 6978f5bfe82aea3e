package observed

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
)

// End returns how a pod ended, by the rules of the kind of its job.
func End(p *corev1.Pod) engine.PodEnd { return engine.EndOf(p, kinds.MainContainer(p)) }

// LastEnd returns the latest time at which a container or init container of a pod ended; zero if none has ended.
func LastEnd(p *corev1.Pod) (last time.Time) {
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if t := c.State.Terminated; t != nil && t.FinishedAt.After(last) {
			last = t.FinishedAt.Time
		}
	}
	return last
}

// Disruption returns the condition DisruptionTarget of a pod if it is True; nil otherwise. Components set it before
// they disrupt the pod, for example by an eviction.
func Disruption(p *corev1.Pod) *corev1.PodCondition {
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
	if i < 0 {
		return nil
	}
	return &p.Status.Conditions[i]
}

// Stopped reports whether a pod was ended by its deletion, for example because of a pause of its job, and not by
// itself: a container that counts for the end of the replica ended after the request to delete the pod. It returns
// false for a pod with a grace period of 0, which may have ended before its deletion: the grace period is 0 if the pod
// had already ended when it was deleted, and once the kubelet has confirmed the end. Times have a resolution of one
// second. An end within the same second as the deletion counts as caused by the deletion.
func Stopped(p *corev1.Pod) bool {
	if p.DeletionTimestamp == nil || p.DeletionGracePeriodSeconds == nil || *p.DeletionGracePeriodSeconds == 0 {
		return false
	}
	finished := End(p).Finished
	asked := p.DeletionTimestamp.Add(-time.Duration(*p.DeletionGracePeriodSeconds) * time.Second)
	return !finished.IsZero() && !finished.Before(asked)
}
