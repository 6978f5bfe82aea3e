package planner

import (
	corev1 "k8s.io/api/core/v1"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/scheduler/core"
	"tensorstack.dev/batch/internal/scheduler/podspec"
)

// foreignPod is a pod that another scheduler has bound and that has a queue label. Its requests count against the
// quota.
type foreignPod struct {
	queueName string
	requests  core.Resources
}

// isForeign reports whether a pod of another scheduler counts against the quota of a queue.
func isForeign(pod *corev1.Pod) bool {
	return !podspec.Ours(pod) && pod.Labels[scheduling.LabelQueue] != "" && pod.Spec.NodeName != ""
}

func (x *index) foreignPodSeen(pod *corev1.Pod) {
	if !isForeign(pod) {
		return
	}
	name := pod.Labels[scheduling.LabelQueue]
	requests := podspec.Requests(pod)
	if old, ok := x.foreign[pod.UID]; ok {
		if equal(old.requests, requests) {
			return
		}
		x.count(old.queueName, old.requests, -1)
	}
	x.foreign[pod.UID] = foreignPod{name, requests}
	x.count(name, requests, 1)
}

func (x *index) foreignPodGone(pod *corev1.Pod) {
	g, ok := x.foreign[pod.UID]
	if !ok {
		return
	}
	delete(x.foreign, pod.UID)
	x.count(g.queueName, g.requests, -1)
	x.freed++
	x.wake()
}
