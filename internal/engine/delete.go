package engine

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// nodeRecheck is the interval at which the node of a pod whose deletion is overdue is checked again.
const nodeRecheck = 30 * time.Second

// deletePod plans the deletion of a pod that is not already being deleted.
func (p *pass) deletePod(pod *corev1.Pod) {
	if pod.DeletionTimestamp == nil {
		d := Deletion{Name: pod.Name, UID: pod.UID}
		if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			d.ResourceVersion = pod.ResourceVersion
		}
		p.plan.Delete = append(p.plan.Delete, d)
	}
}

// deletedAtEnd reports whether a pod must be deleted once the job has finished. ended is true if the pod has ended.
func (p *pass) deletedAtEnd(ended bool) bool {
	return p.CleanUp == batch.CleanUpAll || !ended && (p.CleanUp == batch.CleanUpUnfinished || p.pastDeadline())
}

// createdAfterEnd reports whether a replica's pod was created after the job had finished. An operator that does not
// know yet that it is no longer the leader may create such a pod. Times have a resolution of one second, and the clock
// of the API server may be ahead, so a pod that the status names never counts.
func (p *pass) createdAfterEnd(r *replica, pod *corev1.Pod) bool {
	end := p.old.CompletionTime
	return p.finished && end != nil && r.past.uid == "" && !pod.CreationTimestamp.Before(end)
}

// confirmGone asks for live pods before a paused job forgets a pod that the observer has never seen, because the pod
// may still exist and may end by itself.
func (p *pass) confirmGone(r *replica) {
	if p.mode == batch.RunPause && r.pod == nil && p.seen.Unconfirmed[types.UID(r.past.uid)] && !p.seen.Live {
		p.plan.Refresh = true
	}
}

// forceDelete plans the forced deletion of a pod that cannot end because its node is lost.
func (p *pass) forceDelete(pod *corev1.Pod) {
	overdue := Overdue(pod, *p.cfg)
	if overdue.IsZero() {
		return
	}
	switch {
	case p.seen.Now.Before(overdue):
		p.wakeAt(overdue)
	case p.seen.LostNodes[pod.Spec.NodeName]:
		p.plan.Delete = append(p.plan.Delete, Deletion{Name: pod.Name, UID: pod.UID, Force: true})
		p.lost = append(p.lost, pod)
	default:
		p.wakeAt(p.seen.Now.Add(nodeRecheck))
	}
}

// Overdue returns the time by which a pod that is being deleted should have ended. After that time the caller checks
// the pod's node. The time is zero if the pod is not being deleted or has no node.
func Overdue(pod *corev1.Pod, cfg Config) time.Time {
	if pod == nil || pod.DeletionTimestamp == nil || pod.Spec.NodeName == "" {
		return time.Time{}
	}
	return pod.DeletionTimestamp.Add(cfg.WithDefaults().ForceDeleteAfter)
}
