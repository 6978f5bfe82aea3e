package queue

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/resource"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// groupStatus returns what there is to say of a group except whether it is scheduled, which the scheduler says. A condition that
// says something new gets the given transition ID.
func groupStatus(g *scheduling.PodGroup, pods []corev1.Pod, now time.Time, transition string) scheduling.PodGroupStatus {
	s := scheduling.PodGroupStatus{Allocated: allocated(pods)}
	members := int32(0)
	for i := range pods {
		p := &pods[i]
		if p.DeletionTimestamp == nil {
			members++
		}
		switch p.Status.Phase {
		case corev1.PodRunning:
			s.Running++
		case corev1.PodSucceeded:
			s.Succeeded++
		case corev1.PodFailed:
			s.Failed++
		case corev1.PodUnknown:
			s.Unknown++
		default:
			s.Pending++
		}
	}
	c := scheduling.PodGroupCondition{Type: scheduling.SufficientGroupMember, Status: metav1.ConditionTrue, Reason: scheduling.ReasonEnoughMembers,
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)), TransitionID: transition}
	if members < g.Spec.MinMember {
		c.Status, c.Reason = metav1.ConditionFalse, scheduling.ReasonNotEnoughMembers
		c.Message = fmt.Sprintf("%d of the %d pods that must start together exist", members, g.Spec.MinMember)
	}
	for _, old := range g.Status.Conditions {
		if old.Type != c.Type || old.Status != c.Status {
			continue
		}
		c.LastTransitionTime = old.LastTransitionTime
		if old.Reason == c.Reason && old.Message == c.Message && old.TransitionID != "" {
			c.TransitionID = old.TransitionID
		}
	}
	s.Conditions = []scheduling.PodGroupCondition{c}
	return s
}

// queueStatus is what there is to say of a queue. The shape is nil where the queue has no profile.
func queueStatus(q *scheduling.Queue, shape *Shape, groups int, pods []corev1.Pod, now time.Time) scheduling.QueueStatus {
	s := scheduling.QueueStatus{Allocated: allocated(pods), PodGroups: scheduling.QueuePodGroups{Total: int32(groups)}}
	for i := range pods {
		switch pods[i].Status.Phase {
		case corev1.PodRunning:
			s.Pods.Running++
		case corev1.PodSucceeded:
			s.Pods.Succeeded++
		case corev1.PodFailed:
			s.Pods.Failed++
		case corev1.PodUnknown:
			s.Pods.Unknown++
		default:
			s.Pods.Pending++
		}
	}
	open := scheduling.QueueCondition{Type: scheduling.QueueOpen, Status: metav1.ConditionTrue, Reason: "Open"}
	if q.Spec.Closed {
		open.Status, open.Reason, open.Message = metav1.ConditionFalse, "Closed", "No new group starts; what runs goes on."
	}
	s.Conditions = []scheduling.QueueCondition{open}
	if shape != nil {
		known := scheduling.QueueCondition{Type: scheduling.QueueShapeKnown, Status: metav1.ConditionTrue, Reason: shape.Reason}
		if shape.Problem != "" {
			known.Status, known.Message = metav1.ConditionFalse, "Nothing new starts: "+shape.Problem+"."
		} else {
			s.ResourceShape = &scheduling.ResourceShape{Profile: shape.Profile, Requests: shape.Requests}
		}
		s.Conditions = append(s.Conditions, known)
	}
	for i := range s.Conditions {
		s.Conditions[i].LastTransitionTime = since(&s.Conditions[i], q.Status.Conditions, now)
	}
	return s
}

// since is when a condition got its status: now, unless it had it before.
func since(c *scheduling.QueueCondition, before []scheduling.QueueCondition, now time.Time) metav1.Time {
	for _, old := range before {
		if old.Type == c.Type && old.Status == c.Status {
			return old.LastTransitionTime
		}
	}
	return metav1.NewTime(now.Truncate(time.Second))
}

// allocated sums what the pods request that are bound and have not finished.
func allocated(pods []corev1.Pod) corev1.ResourceList {
	sums := corev1.ResourceList{}
	for i := range pods {
		if !holds(&pods[i]) {
			continue
		}
		for name, v := range resource.PodRequests(&pods[i], resource.PodResourcesOptions{}) {
			sum := sums[name]
			sum.Add(v)
			sums[name] = sum
		}
	}
	return sums
}

// holds tells whether a pod has a node and uses it.
func holds(p *corev1.Pod) bool {
	return p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}
