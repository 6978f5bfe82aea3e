package jobcontroller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"tensorstack.dev/batch/internal/engine"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// PodHandler returns the handler of pod events. It enqueues the job of the pod, and records which pods have been
// deleted and which of them had succeeded. A pass reads all pods of a job, so events of larger jobs are collected for
// longer before one pass handles them. A pod that starts or ends may change the phase of its job, which users wait for,
// so its job has priority over new jobs.
func (r *Reconciler) PodHandler() handler.EventHandler {
	wake := func(o client.Object, q queue, priority int) {
		owner := metav1.GetControllerOfNoCopy(o)
		if owner == nil || owner.Kind != r.kind.Name {
			return
		}
		key := types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}
		after, request := gathering(r.store.size(key)), reconcile.Request{NamespacedName: key}
		if p, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
			p.AddWithOpts(priorityqueue.AddOpts{After: after, Priority: &priority}, request)
		} else {
			q.AddAfter(request, after)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { wake(e.Object, q, 0) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			replaced := e.ObjectNew.GetUID() != e.ObjectOld.GetUID()
			if e.ObjectNew.GetDeletionTimestamp() != nil || replaced {
				r.noteSuccess(e.ObjectOld)
			}
			if replaced {
				r.noteGone(e.ObjectOld)
				wake(e.ObjectOld, q, 0) // the new pod may belong to another job
			}
			if podPhase(e.ObjectOld) != podPhase(e.ObjectNew) {
				wake(e.ObjectNew, q, 1)
			} else {
				wake(e.ObjectNew, q, 0)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			r.noteSuccess(e.Object)
			r.noteGone(e.Object)
			wake(e.Object, q, 0)
		},
	}
}

// noteSuccess records a pod that had succeeded before it was deleted, given its last state before the deletion. The
// next pass may be too late to observe the success. It does nothing for other pods.
func (r *Reconciler) noteSuccess(last client.Object) {
	pod, ok := last.(*corev1.Pod)
	owner := metav1.GetControllerOfNoCopy(last)
	if ok && owner != nil && owner.Kind == r.kind.Name && engine.SucceededUndeleted(pod) {
		r.store.noteSuccess(types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name}, owner.UID, pod)
	}
}

// noteGone records that a pod has been deleted. It must be called after noteSuccess, so that no pass knows of the
// deletion and not of the success. It does nothing for pods that belong to no job of the kind.
func (r *Reconciler) noteGone(last client.Object) {
	if owner := metav1.GetControllerOfNoCopy(last); owner != nil && owner.Kind == r.kind.Name {
		r.store.noteGone(types.NamespacedName{Namespace: last.GetNamespace(), Name: owner.Name}, owner.UID, last.GetUID())
	}
}

func podPhase(o client.Object) corev1.PodPhase {
	if pod, ok := o.(*corev1.Pod); ok {
		return pod.Status.Phase
	}
	return ""
}

// gathering returns how long pod events of a job with n replicas are collected before a pass.
func gathering(n int64) time.Duration {
	const base, perReplica, limit = 5 * time.Millisecond, 100 * time.Microsecond, 500 * time.Millisecond
	return min(base+time.Duration(n)*perReplica, limit)
}
