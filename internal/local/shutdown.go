package local

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tensorstack.dev/batch/internal/local/logind"
)

// DefaultGrace is the default grace period of the pods when the cluster shuts down.
const DefaultGrace = 30 * time.Second

const (
	// reportTime is how long the kubelet may take, after the grace period, to report the pods that it killed when the
	// period ended.
	reportTime = 3 * time.Second
	// drainInterval is how often drain lists the pods that have not terminated.
	drainInterval = 100 * time.Millisecond
)

// ShutdownStatus is the progress of a shutdown of the cluster.
type ShutdownStatus struct {
	// Pods is the number of pods that had not terminated when they were last listed; 0 before the first listing.
	Pods int `json:"pods"`
	// Deadline is the time at which the remaining pods are killed. It is an estimate until the pods' grace period
	// starts.
	Deadline time.Time `json:"deadline"`
}

// shutdown controls the shutdown of a cluster and records its progress. The kubelet terminates the pods as on any
// machine that shuts down.
type shutdown struct {
	endSupervision func() // cancels the context of Supervisor.Run
	logind         *logind.Server

	mu         sync.Mutex
	graceStart time.Time     // start of the pods' grace period, an estimate until drain begins; zero before a request
	grace      time.Duration // of the first request; shorter after a later request that moved the deadline forward
	status     ShutdownStatus
}

// request starts the shutdown, with grace as the grace period of the pods. A later request can shorten the period but
// not extend it.
func (s *shutdown) request(grace time.Duration) {
	s.mu.Lock()
	deadline := time.Now().Add(grace)
	if s.graceStart.IsZero() {
		s.graceStart, s.grace, s.status.Deadline = time.Now(), grace, deadline
	} else if deadline.Before(s.status.Deadline) {
		s.grace, s.status.Deadline = min(grace, s.grace), deadline
	}
	s.mu.Unlock()
	s.endSupervision()
}

// startGracePeriod starts the pods' grace period now, so that the components that stopped earlier have not used up any
// of it. It reports whether the period is longer than zero.
func (s *shutdown) startGracePeriod() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.graceStart = time.Now()
	s.status.Deadline = s.graceStart.Add(s.grace)
	return s.grace > 0
}

// currentStatus returns a copy of the progress, or nil if no shutdown was requested.
func (s *shutdown) currentStatus() *ShutdownStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.graceStart.IsZero() {
		return nil
	}
	status := s.status
	return &status
}

// drain returns the kubelet's Component.Drain. That function announces the shutdown to the kubelet, which then
// terminates the pods. It returns when the API server has recorded how they terminated or when their time is up.
// Without a grace period, it announces nothing and returns immediately.
func (s *shutdown) drain(a *apiClient) func(context.Context) {
	return func(ctx context.Context) {
		if !s.startGracePeriod() {
			return
		}
		s.logind.Announce()
		for {
			pods, err := a.unfinishedPods(ctx)
			if s.drained(pods, err, time.Now()) || !sleep(ctx, drainInterval) {
				return
			}
		}
	}
}

// drained reports whether the shutdown can continue: no pods remain, or their time is up. It records the number of
// remaining pods. If the API server could not list the pods, the kubelet's inhibitor lock shows whether pods remain,
// and drained records nothing.
func (s *shutdown) drained(remaining []corev1.Pod, listErr error, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if listErr != nil {
		return !s.logind.Delayed() || !now.Before(s.status.Deadline)
	}
	s.status.Pods = len(remaining)
	grace := s.status.Deadline.Sub(s.graceStart)
	end := s.status.Deadline
	for i := range remaining {
		// The kubelet kills this pod at the deadline at the latest, and then still has to report its termination.
		if own := remaining[i].Spec.TerminationGracePeriodSeconds; own == nil || time.Duration(*own)*time.Second <= grace {
			end = s.status.Deadline.Add(reportTime)
		}
	}
	return len(remaining) == 0 || !now.Before(end)
}

// unfinishedPods lists the node's pods whose phase is neither Succeeded nor Failed.
func (a *apiClient) unfinishedPods(ctx context.Context) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	pods, err := a.core.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: "spec.nodeName=" + NodeName + ",status.phase!=" + string(corev1.PodSucceeded) + ",status.phase!=" + string(corev1.PodFailed),
	})
	if err != nil {
		return nil, fmt.Errorf("listing the node's pods: %w", err)
	}
	return pods.Items, nil
}

const (
	// apiTimeout limits each listing of the pods, because the API server may not answer.
	apiTimeout = 3 * time.Second
	// maxConcurrentWrites is the largest number of pods that failLostPods writes at the same time.
	maxConcurrentWrites = 16
	// reasonNodeLost is the reason in the status of a pod that was lost with its node.
	reasonNodeLost = "NodeLost"
	messageLost    = "The cluster was killed while the pod ran, which ended the pod."
)

// failLostPods sets the phase of the node's unfinished pods to Failed. It runs before the kubelet starts, when no pod
// can be running: the last machine process was killed, or exited before these pods terminated. The pods get the
// condition DisruptionTarget, because they did not fail by themselves.
func (a *apiClient) failLostPods(ctx context.Context) error {
	pods, err := a.unfinishedPods(ctx)
	if err != nil {
		return err
	}
	writes, ctx := errgroup.WithContext(ctx)
	writes.SetLimit(maxConcurrentWrites)
	for i := range pods {
		writes.Go(func() error { return a.failLostPod(ctx, &pods[i]) })
	}
	return writes.Wait()
}

// failLostPod sets the phase of one pod to Failed. It succeeds without effect if the pod was deleted or replaced.
func (a *apiClient) failLostPod(ctx context.Context, pod *corev1.Pod) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status": corev1.PodStatus{
			Phase: corev1.PodFailed, Reason: reasonNodeLost, Message: messageLost,
			Conditions: []corev1.PodCondition{{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reasonNodeLost, Message: messageLost,
				LastTransitionTime: metav1.Now(),
			}},
		},
	})
	if err != nil {
		return err
	}
	_, err = a.core.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager}, "status")
	replaced := apierrors.IsNotFound(err) || apierrors.IsConflict(err) // deleted, or replaced by a pod of the same name
	if err != nil && !replaced {
		return fmt.Errorf("failing the lost pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
