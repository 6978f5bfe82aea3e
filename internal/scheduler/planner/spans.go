package planner

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/tracing"
)

// scheduleSpans returns the span of a group whose minimum is now bound; none if tracing is disabled.
func (pl *Planner) scheduleSpans(g *group, now time.Time) []tracing.Span {
	if !pl.config.Traced {
		return nil
	}
	pods := make([]*corev1.Pod, 0, len(g.Pods))
	for _, o := range g.Pods {
		if m := pl.index.pods[types.UID(o.UID)]; m != nil && m.bound() {
			pods = append(pods, m.object)
		}
	}
	return []tracing.Span{g.scheduleSpan(pods, now)}
}

// scheduleSpan returns the span from the creation of the youngest bound pod of the group, because the group could not
// start before, until the last pod was bound. pods are the bound pods; if there are none, the span is from the creation
// of the PodGroup until now. It belongs to the trace of the group's job if there is one, and to a separate trace
// otherwise. Like the operator's spans, it uses times of API objects, which are in whole seconds.
func (g *group) scheduleSpan(pods []*corev1.Pod, now time.Time) tracing.Span {
	s := tracing.Span{Object: g.spec.UID, Name: tracing.SchedulePods, Start: g.spec.CreationTimestamp.Time, Attributes: []attribute.KeyValue{
		tracing.Namespace.String(g.spec.Namespace), tracing.PodGroup.String(g.spec.Name), tracing.Queue.String(g.queueName()),
		tracing.Pods.Int(len(pods)), tracing.MinMember.Int(g.Min)}}
	if owner := metav1.GetControllerOfNoCopy(g.spec); owner != nil && owner.APIVersion == batch.GroupVersion.String() {
		s.Object, s.Parent = owner.UID, tracing.StartJob
	}
	for _, pod := range pods {
		if at := pod.CreationTimestamp.Time; at.After(s.Start) {
			s.Start = at
		}
		if _, c := podutil.GetPodCondition(&pod.Status, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionTrue && c.LastTransitionTime.After(s.End) {
			s.End = c.LastTransitionTime.Time
		}
		// A group is scheduled again only after all of its pods have been replaced, so the UID of a pod distinguishes
		// its starts.
		s.Repetition = max(s.Repetition, string(pod.UID))
	}
	if s.End.IsZero() { // its pods have already finished
		s.End = now.Truncate(time.Second)
	}
	if s.End.Before(s.Start) {
		s.End = s.Start
	}
	if was := g.lastReported; was.status == metav1.ConditionFalse {
		s.Attributes = append(s.Attributes, tracing.WaitReason.String(was.reason))
	}
	return s
}
