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

// DefaultGrace is how long pods may take to end when the cluster goes down.
const DefaultGrace = 30 * time.Second

const (
	// reportTime is how long after the end of the grace period the kubelet may take to report the pods that ended with it.
	reportTime = 3 * time.Second
	// drainInterval is how often the API server is asked which pods have not ended.
	drainInterval = 100 * time.Millisecond
)

// ShutdownStatus tells how far a cluster is that goes down.
type ShutdownStatus struct {
	// Pods have not ended yet.
	Pods int `json:"pods"`
	// Deadline is when those that are left are killed.
	Deadline time.Time `json:"deadline"`
}

// shutdown is the end of a cluster. Its kubelet ends the pods, as that of any machine does which shuts down.
type shutdown struct {
	begin  func() // ends the supervision
	logind *logind.Server

	mu     sync.Mutex
	began  time.Time     // when the pods' time to end began, or will as far as is known; zero until the end is asked for
	grace  time.Duration // the least that was asked for so far
	status ShutdownStatus
}

// request begins the shutdown, in which pods may take as long as grace. A later request can shorten the time, not prolong it.
func (s *shutdown) request(grace time.Duration) {
	s.mu.Lock()
	deadline := time.Now().Add(grace)
	if s.began.IsZero() {
		s.began, s.grace, s.status.Deadline = time.Now(), grace, deadline
	} else if deadline.Before(s.status.Deadline) {
		s.grace, s.status.Deadline = min(grace, s.grace), deadline
	}
	s.mu.Unlock()
	s.begin()
}

// reach begins the pods' time to end, of which nothing goes to the components that end before them. It tells whether there is any.
func (s *shutdown) reach() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began = time.Now()
	s.status.Deadline = s.began.Add(s.grace)
	return s.grace > 0
}

// now returns nil unless the cluster goes down.
func (s *shutdown) now() *ShutdownStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.began.IsZero() {
		return nil
	}
	status := s.status
	return &status
}

// drain has the kubelet end the pods, and returns when the API server knows how they ended, or when time is up.
func (s *shutdown) drain(a *api) func(context.Context) {
	return func(ctx context.Context) {
		if !s.reach() {
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

// drained takes down which pods are left, and tells whether there is nothing to wait for. Where the API server cannot say which are
// left, the kubelet does, by delaying the shutdown.
func (s *shutdown) drained(left []corev1.Pod, unknown error, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if unknown != nil {
		return !s.logind.Delayed() || !now.Before(s.status.Deadline)
	}
	s.status.Pods = len(left)
	grace := s.status.Deadline.Sub(s.began)
	end := s.status.Deadline
	for i := range left {
		// What had to end by now has been killed, and the kubelet is about to say so.
		if own := left[i].Spec.TerminationGracePeriodSeconds; own == nil || time.Duration(*own)*time.Second <= grace {
			end = s.status.Deadline.Add(reportTime)
		}
	}
	return len(left) == 0 || !now.Before(end)
}

// unfinishedPods lists the node's pods that have not ended as far as the API server knows.
func (a *api) unfinishedPods(ctx context.Context) ([]corev1.Pod, error) {
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
	// apiTimeout bounds one request to an API server that may not answer.
	apiTimeout = 3 * time.Second
	// atOnce is how many pods are written at the same time.
	atOnce = 16
	// reasonNodeLost is the reason of pods that ended with their node.
	reasonNodeLost = "NodeLost"
	messageLost    = "The cluster ended while the pod ran, and the pod with it."
)

// failLostPods fails the pods that, as far as the API server knows, run on the node. It is called when nothing runs there yet: the
// machine process ended without a shutdown, or before these pods did, and they are lost through no doing of their own.
func (a *api) failLostPods(ctx context.Context) error {
	pods, err := a.unfinishedPods(ctx)
	if err != nil {
		return err
	}
	writes, ctx := errgroup.WithContext(ctx)
	writes.SetLimit(atOnce)
	for i := range pods {
		writes.Go(func() error { return a.failLostPod(ctx, &pods[i]) })
	}
	return writes.Wait()
}

func (a *api) failLostPod(ctx context.Context, pod *corev1.Pod) error {
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
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // gone, or another of its name
		return fmt.Errorf("failing the lost pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
