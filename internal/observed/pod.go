package observed

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Stopped reports whether a pod that has ended was ended by its deletion, for example because its job was paused, and
// not by itself. A pod that had ended when somebody deleted it has no grace period; nor has any pod once its kubelet
// has confirmed its end. Times have a resolution of one second, and an end within the same second counts as caused by
// the deletion.
func Stopped(p *corev1.Pod) bool {
	if p.DeletionTimestamp == nil || p.DeletionGracePeriodSeconds == nil || *p.DeletionGracePeriodSeconds == 0 {
		return false
	}
	var first time.Time
	for i := range p.Status.ContainerStatuses {
		if t := p.Status.ContainerStatuses[i].State.Terminated; t != nil && (first.IsZero() || t.FinishedAt.Time.Before(first)) {
			first = t.FinishedAt.Time
		}
	}
	asked := p.DeletionTimestamp.Add(-time.Duration(*p.DeletionGracePeriodSeconds) * time.Second)
	return !first.IsZero() && !first.Before(asked)
}
