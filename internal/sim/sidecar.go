package sim

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// sidecar is the name of a container that runs beside the main one. It runs forever, unless it is stopped or
// sidecarEnds ends it.
const sidecar = "sidecar"

// started returns the statuses of a pod's containers when they start.
func (w *world) started(pod *corev1.Pod) []corev1.ContainerStatus {
	var all []corev1.ContainerStatus
	for _, c := range pod.Spec.Containers {
		all = append(all, corev1.ContainerStatus{Name: c.Name, State: corev1.ContainerState{
			Running: &corev1.ContainerStateRunning{StartedAt: w.nodeStamp(w.now)}}})
	}
	return all
}

// terminate ends a container unless it has ended.
func (w *world) terminate(s *corev1.ContainerStatus, code int32, at time.Time) {
	if s.State.Terminated == nil {
		s.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, StartedAt: s.State.Running.StartedAt, FinishedAt: w.nodeStamp(at)}}
	}
}

// statusOf returns the status of a container of a pod, or nil.
func statusOf(pod *corev1.Pod, container string) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == container {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}

// sidecarRuns reports whether a pod has a sidecar that runs.
func (w *world) sidecarRuns(pod *corev1.Pod) bool {
	s := statusOf(pod, sidecar)
	return s != nil && s.State.Running != nil
}

// mainOf returns the status of the main container of a pod, or nil.
func mainOf(pod *corev1.Pod) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name != sidecar {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}

// decided reports whether the replica of a pod has ended. Its sidecar may still run.
func decided(pod *corev1.Pod) bool {
	main := mainOf(pod)
	return ended(pod) || main != nil && main.State.Terminated != nil
}

// sidecarEnds ends the sidecar of a pod, if it has one, before its main container.
func (w *world) sidecarEnds(pod *corev1.Pod) {
	if s := statusOf(pod, sidecar); s != nil {
		w.terminate(s, int32(w.rng.IntN(2)), w.now)
		w.podChanged(pod.Name)
	}
}
