package queue

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/resource"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// groupStatus computes the status of a group, except for the condition GroupScheduled, which the scheduler owns. The
// condition SufficientGroupMember gets the given transition ID if its status, reason or message changes.
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

// queueStatus computes the status of a queue. shape is nil if the queue has no profile. foreign are the pods of other
// schedulers that name the queue: their requests count against the quota, but they are not among the counted pods.
func queueStatus(q *scheduling.Queue, shape *Shape, groups int, pods, foreign []corev1.Pod, now time.Time) scheduling.QueueStatus {
	s := scheduling.QueueStatus{Allocated: allocated(slices.Concat(pods, foreign)), PodGroups: scheduling.QueuePodGroups{Total: int32(groups)}}
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
		open.Status, open.Reason, open.Message = metav1.ConditionFalse, "Closed", "No new group starts; running pods continue."
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
	if len(q.Spec.Quota.Requests) > 0 {
		s.Conditions = append(s.Conditions, withinQuota(q, s.Allocated, foreign))
	}
	for i := range s.Conditions {
		s.Conditions[i].LastTransitionTime = since(&s.Conditions[i], q.Status.Conditions, now)
	}
	return s
}

// withinQuota returns the condition that reports whether the requests of a queue's pods are within its quota. The
// scheduler enforces the quota when it starts pods. The requests can exceed it because of later changes, for example of
// the quota, and because of pods that another scheduler has bound.
func withinQuota(q *scheduling.Queue, allocated corev1.ResourceList, foreign []corev1.Pod) scheduling.QueueCondition {
	c := scheduling.QueueCondition{Type: scheduling.QueueWithinQuota, Status: metav1.ConditionTrue, Reason: scheduling.ReasonWithinQuota}
	var over []string
	for _, name := range slices.Sorted(maps.Keys(q.Spec.Quota.Requests)) {
		quota, used := q.Spec.Quota.Requests[name], allocated[name]
		if used.Cmp(quota) > 0 {
			over = append(over, fmt.Sprintf("%s of %s %s", used.String(), quota.String(), name))
		}
	}
	if len(over) == 0 {
		return c
	}
	c.Status, c.Reason = metav1.ConditionFalse, scheduling.ReasonQuotaExceeded
	c.Message = fmt.Sprintf("Its pods request more than the quota: %s. Pods that need more of it wait until others have ended.", strings.Join(over, ", "))
	placed := 0
	for i := range foreign {
		if holds(&foreign[i]) {
			placed++
		}
	}
	if placed > 0 {
		c.Message += fmt.Sprintf(" Another scheduler placed %d of them.", placed)
	}
	return c
}

// since returns the time at which a condition got its status: its earlier transition time if the status is the same,
// and otherwise now.
func since(c *scheduling.QueueCondition, before []scheduling.QueueCondition, now time.Time) metav1.Time {
	for _, old := range before {
		if old.Type == c.Type && old.Status == c.Status {
			return old.LastTransitionTime
		}
	}
	return metav1.NewTime(now.Truncate(time.Second))
}

// allocated sums the requests of the pods that are bound and have not finished.
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

// holds reports whether a pod is bound to a node and has not finished, so that it uses resources of the node.
func holds(p *corev1.Pod) bool {
	return p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}
