package planner

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/scheduler/rights"
)

// admit records in a group, or in each of its waiting pods, why the requester may not use the queue. It reports whether
// the right of the requester is known.
func (x *index) admit(g *group, r *rights.Rights, now time.Time) (known bool) {
	q := x.queues[g.queueName()]
	free := r == nil || q == nil || r.Selects(q.users, g.key.Namespace)
	if free && !g.asked {
		return true
	}
	g.asked, known = !free, true
	refusal := func(o metav1.Object) string {
		if free {
			return ""
		}
		why, ok := r.Refusal(q.Name, g.key.Namespace, o.GetAnnotations()[scheduling.AnnotationRequestedBy], now)
		known = known && ok
		return why
	}
	g.Barred = ""
	for _, p := range g.Pods {
		pod := x.objectOf(p)
		switch {
		case p.Node != "":
		case g.single:
			g.Barred = refusal(pod)
		case pod.Labels[batch.LabelJobName] == "":
			p.Barred = refusal(pod)
		case g.spec != nil && g.Barred == "":
			g.Barred = g.jobRefusal(q, free, refusal)
		}
	}
	g.asking = !known
	return known
}

// jobRefusal returns why the job of a group may not use its queue; empty if it may. It does not check the creator of
// the pods, which is the operator.
func (g *group) jobRefusal(q *queue, free bool, refusal func(metav1.Object) string) string {
	switch {
	case g.spec.Annotations[scheduling.AnnotationRequestedBy] != "":
		return refusal(g.spec)
	case !free && g.Created.Before(q.created):
		// Admission has checked the requester of a job that is younger than the queue.
		return fmt.Sprintf("queue %s is not for namespace %s, which its namespaceSelector does not select, and is newer than the job, "+
			"so the right of the job's requester to it was not checked: create the job again, or choose another queue", q.Name, g.key.Namespace)
	}
	return ""
}

// answered marks the groups whose rights were unknown, so that the next round tries them.
func (x *index) answered() {
	for g := range x.waiting {
		if g.asking {
			g.asking, g.changed = false, true
		}
	}
	x.wake()
}
