package jobcontroller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
)

// observer reads the state of jobs. It writes nothing.
type observer struct {
	kind   kinds.Kind
	engine engine.Config
	// cached reads from the caches, live from the API server.
	cached, live client.Reader
	fence        *leaderFence
	// eventReads limits the reads of events over all jobs.
	eventReads limiter
	clock      clock.PassiveClock
}

// observe reads the state of a job from the caches, and adds from the expectations what the caches do not show yet.
// From the API server, it reads only the pods that the cache should show by now, the warning events of a pod that does
// not start, and the nodes of pods whose deletion is overdue. It updates exp.
func (o *observer) observe(ctx context.Context, obj kinds.Object, job *engine.Job, exp *expectations) (engine.Seen, error) {
	seen := engine.Seen{Now: o.clock.Now(), Status: o.kind.Status(obj), LastWrite: exp.writtenAt, Refusals: exp.refusals,
		Unwritten: !exp.tried && o.fence.includes(obj), ContestedSince: exp.contestedSince,
		LastPass: exp.lastPass, Ends: exp.ends}
	if !exp.tried && seen.Status.RunMode != "" {
		// Another process wrote the status at an unknown time. This write counts as long ago, because a process that
		// is killed repeatedly would otherwise delay its writes forever.
		seen.LastWrite = time.Time{}
	}
	var pods corev1.PodList
	if err := o.cached.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingFields{ownerIndex: string(job.UID)},
		client.UnsafeDisableDeepCopy); err != nil {
		return seen, fmt.Errorf("listing the pods of %s/%s: %w", job.Namespace, job.Name, err)
	}
	if err := o.confirmCreated(ctx, job, pods.Items, exp, seen.Now); err != nil {
		return seen, err
	}
	seen.Pods = exp.merge(pods.Items, seen.Now)
	seen.Succeeded = exp.departed.open(seen.Status, seen.Pods)
	exp.replicas.Store(int64(job.Replicas()))
	if job.Service != nil {
		ours, err := o.ownsService(ctx, job)
		if err != nil {
			return seen, err
		}
		if ours || !seen.Now.Before(exp.serviceUntil) {
			exp.serviceUntil = time.Time{}
		}
		seen.Service = ours || !exp.serviceUntil.IsZero()
	}
	var err error
	if job.Gang != nil {
		if seen.Group, err = o.readGroup(ctx, obj, exp, seen.Now); err != nil {
			return seen, err
		}
	}
	if seen.Warning, err = o.lastWarning(ctx, seen, exp); err != nil {
		return seen, err
	}
	seen.LostNodes, err = o.lostNodes(ctx, seen)
	return seen, err
}

// confirmCreated asks the API server for pods that this process created, or last confirmed, more than cacheLag ago and
// that the cache does not show yet. Pods that still exist count as created now; merge drops the others.
func (o *observer) confirmCreated(ctx context.Context, job *engine.Job, cached []corev1.Pod, exp *expectations, now time.Time) error {
	late := exp.lateCreations(cached, now)
	if len(late) == 0 {
		return nil
	}
	view, err := o.readLive(ctx, job)
	if err != nil {
		return err
	}
	for _, name := range late {
		if pod := view.pods[exp.created[name].pod.UID]; pod != nil {
			exp.created[name] = madePod{pod, now.Add(cacheLag)}
		}
	}
	return nil
}

// readGroup returns the job's PodGroup from the cache or, until the cache should show it, as this process created it;
// nil if there is none.
func (o *observer) readGroup(ctx context.Context, obj kinds.Object, exp *expectations, now time.Time) (*scheduling.PodGroup, error) {
	group := &scheduling.PodGroup{}
	switch err := o.cached.Get(ctx, client.ObjectKeyFromObject(obj), group); {
	case err == nil && metav1.IsControlledBy(group, obj):
		exp.groupUntil = time.Time{}
		return group, nil
	case client.IgnoreNotFound(err) != nil:
		return nil, fmt.Errorf("reading PodGroup %s/%s: %w", obj.GetNamespace(), obj.GetName(), err)
	case now.Before(exp.groupUntil):
		return exp.group, nil
	default:
		exp.groupUntil = time.Time{}
		return nil, nil
	}
}

func (o *observer) ownsService(ctx context.Context, job *engine.Job) (bool, error) {
	s := &metav1.PartialObjectMetadata{}
	s.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Service"))
	err := o.cached.Get(ctx, types.NamespacedName{Namespace: job.Namespace, Name: job.Name}, s)
	if err != nil {
		return false, wrapUnlessNotFound(err, "reading Service %s/%s", job.Namespace, job.Name)
	}
	owner := metav1.GetControllerOfNoCopy(s)
	return owner != nil && owner.UID == job.UID, nil
}

// lostNodes reads the nodes of pods whose deletion is overdue. It returns, by name, whether each of them is deleted or
// not ready; nil if there are no such pods. There are few, so the operator does not watch nodes.
func (o *observer) lostNodes(ctx context.Context, seen engine.Seen) (map[string]bool, error) {
	var lost map[string]bool
	for _, pod := range seen.Pods {
		overdue := engine.Overdue(pod, o.engine)
		if overdue.IsZero() || seen.Now.Before(overdue) {
			continue
		}
		name := pod.Spec.NodeName
		if _, known := lost[name]; known {
			continue
		}
		if lost == nil {
			lost = map[string]bool{}
		}
		node := &corev1.Node{}
		err := o.live.Get(ctx, types.NamespacedName{Name: name}, node)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading node %s of pod %s/%s: %w", name, pod.Namespace, pod.Name, err)
		}
		lost[name] = err != nil || !nodeReady(node)
	}
	return lost, nil
}

func nodeReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func wrapUnlessNotFound(err error, format string, args ...any) error {
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
