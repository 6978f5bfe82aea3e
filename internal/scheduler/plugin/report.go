package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
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

// report says why a group waits: in the group's condition, unless its minimum runs, and on its pods. The index is locked.
func (p *Plugin) report(g *group, d *core.Decision, now time.Time) {
	if d.Reason == core.Scheduled {
		return
	}
	if d.Reason == core.NotEnoughMembers && now.Sub(g.core.Created) < settling {
		g.look = g.core.Created.Add(settling)
		return // its pods are just being made
	}
	if !d.Extra && !g.single && !g.core.Complete {
		p.say(g, metav1.ConditionFalse, string(d.Reason), d.Message, now)
		p.reportPods(g, podReason(d), fmt.Sprintf("waits until all of PodGroup %s can start: its condition %s says what is missing", g.key.Name, scheduling.GroupScheduled), now)
		return
	}
	p.reportPods(g, podReason(d), d.Message, now)
}

// podReason is the reason of the condition PodScheduled of pods that wait. Autoscalers add nodes for pods that are Unschedulable, so
// none is for whose start more nodes do nothing.
func podReason(d *core.Decision) string {
	if d.LacksNodes {
		return corev1.PodReasonUnschedulable
	}
	return string(d.Reason)
}

// reportPods says on the pods of a group that wait why they do. Messages of a group that starts as a whole point to its condition,
// so that a pod costs a write only when its reason changes. The index is locked.
func (p *Plugin) reportPods(g *group, reason, message string, now time.Time) {
	for _, o := range g.core.Pods {
		m := p.index.pods[types.UID(o.UID)]
		if m == nil || o.Node != "" || o.Ending {
			continue
		}
		if m.told == (told{}) {
			m.told = toldBy(m.pod) // by the scheduler that led before
		}
		if m.told.reason == reason && m.told.message == message {
			continue
		}
		if until := m.told.at.Add(quiet); now.Before(until) {
			if g.look.IsZero() || until.Before(g.look) {
				g.look = until
			}
			continue
		}
		m.told = told{reason: reason, message: message, at: now}
		p.conditions.pod(m.pod.UID, p.index.waitingPod, m.told)
	}
}

// told is what was last written on a pod of why it waits.
type told struct {
	reason, message string
	at              time.Time
}

func toldBy(pod *corev1.Pod) told {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return told{reason: c.Reason, message: c.Message}
		}
	}
	return told{}
}

// waitingPod is a pod that has no node and gets none; nil if there is none of that UID.
func (x *index) waitingPod(uid types.UID) *corev1.Pod {
	x.mu.Lock()
	defer x.mu.Unlock()
	if m := x.pods[uid]; m != nil && m.core.Node == "" && !m.core.Ending {
		return m.pod
	}
	return nil
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

// conditions writes conditions, the last one of each object. Those of groups do not wait for those of pods, which are many.
type conditions struct {
	client client.Client
	core   kubernetes.Interface
	groups *lastWork
	pods   *lastWork
}

func newConditions(c client.Client, core kubernetes.Interface) *conditions {
	return &conditions{client: c, core: core, groups: newLastWork(retryConditions), pods: newLastWork(retryConditions)}
}

func (c *conditions) run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { c.groups.run(ctx, 4) })
	both.Go(func() { c.pods.run(ctx, 4) })
	both.Wait()
}

func (c *conditions) group(key types.NamespacedName, condition scheduling.PodGroupCondition) {
	c.groups.put(key.String(), func(ctx context.Context) error {
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

// pod says on a pod why it waits, if it still does when its turn comes.
func (c *conditions) pod(uid types.UID, waiting func(types.UID) *corev1.Pod, what told) {
	c.pods.put(string(uid), func(ctx context.Context) error {
		pod := waiting(uid)
		if pod == nil {
			return nil
		}
		err := c.writePod(ctx, pod, what)
		switch {
		case apierrors.IsConflict(err): // it has changed since it was last seen, and may even have been bound
			return errAgain
		case err != nil && !apierrors.IsNotFound(err):
			return fmt.Errorf("writing the condition of pod %s: %w", podKey(pod), err)
		}
		return nil
	})
}

// writePod writes the condition PodScheduled of a pod, unless the pod has changed.
func (c *conditions) writePod(ctx context.Context, pod *corev1.Pod, what told) error {
	status := pod.Status.DeepCopy()
	podutil.UpdatePodCondition(status, &corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
		Reason: what.reason, Message: what.message, ObservedGeneration: podutil.CalculatePodConditionObservedGeneration(status, pod.Generation, corev1.PodScheduled)})
	_, condition := podutil.GetPodCondition(status, corev1.PodScheduled)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"status": map[string]any{"conditions": []*corev1.PodCondition{condition}}})
	if err != nil {
		return err
	}
	_, err = c.core.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
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
