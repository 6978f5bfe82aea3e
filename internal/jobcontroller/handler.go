package jobcontroller

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// podHandler wakes a pod's job. A pass looks at all pods of a job, so the larger the job, the longer the events of its pods
// are gathered before one pass handles them all.
func (r *reconciler) podHandler() handler.EventHandler {
	wake := func(o client.Object, q queue) {
		owner := metav1.GetControllerOfNoCopy(o)
		if owner == nil || owner.Kind != r.kind.Name {
			return
		}
		key := types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}
		q.AddAfter(reconcile.Request{NamespacedName: key}, gathering(r.memories.size(key)))
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { wake(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { wake(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { wake(e.Object, q) },
	}
}

// gathering is the time for which pod events of a job of n replicas are gathered.
func gathering(n int64) time.Duration {
	const base, perReplica, most = 5 * time.Millisecond, 100 * time.Microsecond, 500 * time.Millisecond
	return min(base+time.Duration(n)*perReplica, most)
}
