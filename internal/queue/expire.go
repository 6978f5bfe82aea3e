package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// notice is how long a pod that is too old carries the condition DisruptionTarget before it is deleted. The job's
// controller must see the condition, because it would replace a pod that is deleted without the condition. After a
// restart of the operator, the time counts from the first reconciliation of a queue. Times on pods are whole seconds,
// so the actual time can be one second shorter.
const notice = 2 * time.Second

// expiryCondition returns the condition that mark sets on a pod that is too old; nil if the pod has none.
func expiryCondition(p *corev1.Pod) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == string(batch.ReasonQueueMaxDuration) {
			return c
		}
	}
	return nil
}

// expire marks the pods that are older than the queue allows, deletes marked pods after notice, and requests the next
// reconciliation for the time at which the next pod is due. It leaves out pods that have finished or are being deleted.
func (k *reconciler) expire(ctx context.Context, q *scheduling.Queue, pods []corev1.Pod, now time.Time) (reconcile.Result, error) {
	k.began.CompareAndSwap(nil, &now)
	limit, err := ParseDuration(q.Spec.MaxDuration)
	if err != nil || limit == 0 { // the CRD refuses texts that do not parse
		return reconcile.Result{}, nil
	}
	var next time.Duration
	for i := range pods {
		p := &pods[i]
		if p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		left, mark := limit-now.Sub(p.CreationTimestamp.Time), expiryCondition(p)
		switch {
		case mark != nil:
			left = notice - min(now.Sub(mark.LastTransitionTime.Time), now.Sub(*k.began.Load()))
			if left <= 0 {
				err = k.end(ctx, p)
			}
		case left <= 0:
			err, left = k.mark(ctx, p, q), notice
		}
		if err != nil {
			return reconcile.Result{}, err
		}
		if left > 0 && (next == 0 || left < next) {
			next = left
		}
	}
	return reconcile.Result{RequeueAfter: next}, nil
}

// mark sets the condition DisruptionTarget on a pod that is older than its queue allows.
func (k *reconciler) mark(ctx context.Context, p *corev1.Pod, q *scheduling.Queue) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.UID},
		"status": map[string]any{"conditions": []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: string(batch.ReasonQueueMaxDuration),
			Message: fmt.Sprintf("the pod is older than the %s that queue %s allows", q.Spec.MaxDuration, q.Name), LastTransitionTime: metav1.Now()}}},
	})
	if err != nil {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	err = k.client.Status().Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, patch))
	// A conflict means that another pod has the name.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("marking pod %s/%s, which is older than its queue allows: %w", p.Namespace, p.Name, err)
	}
	if err == nil {
		logf.FromContext(ctx).Info("Marked a pod that is older than its queue allows",
			"pod", klog.KObj(p), "queue", klog.KObj(q), "maxDuration", q.Spec.MaxDuration, "created", p.CreationTimestamp)
	}
	return nil
}

// end deletes a marked pod.
func (k *reconciler) end(ctx context.Context, p *corev1.Pod) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	err := k.client.Delete(ctx, pod, client.Preconditions{UID: &p.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting pod %s/%s, which is older than its queue allows: %w", p.Namespace, p.Name, err)
	}
	if err == nil {
		logf.FromContext(ctx).Info("Deleted a pod that is older than its queue allows", "pod", klog.KObj(p))
	}
	return nil
}
