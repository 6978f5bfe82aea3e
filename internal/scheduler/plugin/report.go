package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/scheduler/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/scheduler/core"
)

// FieldManager owns the condition GroupScheduled of PodGroups.
const FieldManager = "t9k-scheduler"

// quiet is how long a message whose reason stays the same is not written again.
const quiet = 10 * time.Second

// settling is how long nothing is said of pods that a new group lacks.
const settling = 2 * time.Second

// retryConditions is after how long a condition is written again whose writing failed.
const retryConditions = time.Second

// said is what was last said of a group.
type said struct {
	status          metav1.ConditionStatus
	reason, message string
	at, changed     time.Time
}

func saidIn(pg *scheduling.PodGroup) said {
	for _, c := range pg.Status.Conditions {
		if c.Type == scheduling.GroupScheduled {
			return said{status: c.Status, reason: c.Reason, message: c.Message, changed: c.LastTransitionTime.Time}
		}
	}
	return said{}
}

// report says of a group why it waits. The index is locked.
func (p *Plugin) report(g *group, d *core.Decision, now time.Time) {
	if d.Reason == core.Scheduled {
		return
	}
	if d.Extra || g.single || g.core.Complete {
		for _, o := range d.Group.Pods {
			if m := p.index.pods[types.UID(o.UID)]; m != nil && o.Node == "" && m.told != d.Message && now.Sub(m.toldAt) >= quiet {
				m.told, m.toldAt = d.Message, now
				p.conditions.pod(m.pod, d.Message)
			}
		}
		return
	}
	if d.Reason == core.NotEnoughMembers && now.Sub(g.core.Created) < settling {
		g.look = g.core.Created.Add(settling)
		return // its pods are just being made
	}
	p.say(g, metav1.ConditionFalse, string(d.Reason), d.Message, now)
}

// completed says of a group that its minimum is bound, or that it is not any more, for none of its pods runs. A scheduler that
// starts anew goes by it. The index is locked.
func (p *Plugin) completed(g *group) {
	switch {
	case g.single || g.spec == nil:
	case g.core.Complete:
		p.say(g, metav1.ConditionTrue, scheduling.ReasonScheduled, "", time.Now())
	case g.said.status == metav1.ConditionTrue:
		p.say(g, metav1.ConditionFalse, scheduling.ReasonNotEnoughMembers, "", time.Now())
	}
}

func (p *Plugin) reportFailure(g *group, why string) {
	p.index.mu.Lock()
	defer p.index.mu.Unlock()
	if !g.single && !g.core.Complete {
		p.say(g, metav1.ConditionFalse, scheduling.ReasonBindingFailed, why, time.Now())
	}
}

// say has a condition written, if it says something new.
func (p *Plugin) say(g *group, status metav1.ConditionStatus, reason, message string, now time.Time) {
	s := &g.said
	if s.status == status && s.reason == reason && s.message == message {
		return
	}
	if s.status == status && s.reason == reason && now.Sub(s.at) < quiet {
		g.look = s.at.Add(quiet)
		return
	}
	if s.status != status {
		s.changed = now
	}
	s.status, s.reason, s.message, s.at = status, reason, message, now
	p.conditions.group(g.key, scheduling.PodGroupCondition{Type: scheduling.GroupScheduled, Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(s.changed), TransitionID: string(uuid.NewUUID())})
}

// conditions writes conditions, the last one of each object.
type conditions struct {
	client client.Client
	core   kubernetes.Interface
	work   *lastWork
}

func newConditions(c client.Client, core kubernetes.Interface) *conditions {
	return &conditions{client: c, core: core, work: newLastWork(retryConditions)}
}

func (c *conditions) run(ctx context.Context) { c.work.run(ctx, 4) }

func (c *conditions) group(key types.NamespacedName, condition scheduling.PodGroupCondition) {
	c.work.put("group "+key.String(), func(ctx context.Context) error {
		patch, err := json.Marshal(map[string]any{
			"apiVersion": scheduling.GroupVersion.String(), "kind": "PodGroup",
			"metadata": map[string]any{"name": key.Name, "namespace": key.Namespace},
			"status":   map[string]any{"conditions": []scheduling.PodGroupCondition{condition}},
		})
		if err != nil {
			return err
		}
		pg := &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		err = c.client.Status().Patch(ctx, pg, client.RawPatch(types.ApplyPatchType, patch), client.FieldOwner(FieldManager), client.ForceOwnership)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("writing the condition of PodGroup %s: %w", key, err)
		}
		return nil
	})
}

// pod says on a pod itself why it waits. Groups of pods have a condition of their own for that.
func (c *conditions) pod(pod *corev1.Pod, message string) {
	for _, o := range pod.Status.Conditions {
		if o.Type == corev1.PodScheduled && o.Message == message {
			return
		}
	}
	c.work.put("pod "+string(pod.UID), func(ctx context.Context) error {
		status := pod.Status.DeepCopy()
		podutil.UpdatePodCondition(status, &corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonUnschedulable, Message: message})
		err := util.PatchPodStatus(ctx, c.core, pod.Name, pod.Namespace, &pod.Status, status)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("writing the condition of pod %s: %w", podKey(pod), err)
		}
		return nil
	})
}

// evictions ends pods in favour of others.
type evictions struct {
	core kubernetes.Interface
	work *lastWork
}

func newEvictions(core kubernetes.Interface) *evictions {
	return &evictions{core: core, work: newLastWork(0)} // the planner asks again for what it still wants
}

func (e *evictions) run(ctx context.Context) { e.work.run(ctx, 8) }

// add evicts a pod: first it is said on the pod why, so that whoever replaces it knows that it did not fail.
func (e *evictions) add(pod *corev1.Pod, d *core.Decision) {
	message := fmt.Sprintf("%s: preempting to make room for group %s", scheduling.SchedulerName, d.Group.Name)
	if d.Hold == nil {
		message = fmt.Sprintf("%s: group %s was bound in part only and could not be completed", scheduling.SchedulerName, d.Group.Name)
	}
	e.work.put(string(pod.UID), func(ctx context.Context) error {
		status := pod.Status.DeepCopy()
		podutil.UpdatePodCondition(status, &corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
			Reason: corev1.PodReasonPreemptionByScheduler, Message: message})
		if err := util.PatchPodStatus(ctx, e.core, pod.Name, pod.Namespace, &pod.Status, status); apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return fmt.Errorf("marking pod %s for eviction: %w", podKey(pod), err)
		}
		err := e.core.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *metav1.NewPreconditionDeleteOptions(string(pod.UID)))
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("evicting pod %s: %w", podKey(pod), err)
		}
		return nil
	})
}
