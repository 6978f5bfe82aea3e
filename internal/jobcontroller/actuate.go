package jobcontroller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/tracing"
)

// maxInFlightPerJob limits the concurrent requests that create, delete or stop pods of one job.
const maxInFlightPerJob = 32

var (
	// errStale means that the job or one of its objects has changed since the caches showed it.
	errStale = errors.New("the job has changed since it was read")
	// errNameTaken means that an object that does not belong to the job has a name that the job needs.
	errNameTaken = errors.New("the name is taken")
	// errNamespaceTerminating means that the API server creates nothing in the job's namespace, which is being deleted.
	errNamespaceTerminating = errors.New("the namespace is being deleted")
)

// actuator executes plans.
type actuator struct {
	kind   kinds.Kind
	client client.Client
	// live reads from the API server.
	live     client.Reader
	statuses rest.Interface
	recorder Recorder
	// inFlight limits the concurrent requests that create, delete or stop pods over all jobs, and maxPerJob those of
	// each job.
	inFlight  *concurrencyLimiter
	maxPerJob int
	clock     clock.PassiveClock
	// spans records traces of job starts; nil disables tracing.
	spans *tracing.Recorder
}

// actuate executes a plan in the order that engine.Plan defines. It stops at the first error. pods are those that were
// observed, which the spans of the job's start describe. After a confirmation or a status write, it prunes
// exp.departed.
func (a *actuator) actuate(ctx context.Context, obj kinds.Object, job *engine.Job, pods []*corev1.Pod, plan engine.Plan, exp *expectations) error {
	if plan.Confirm {
		if err := a.confirm(ctx, obj); err != nil {
			return err
		}
	}
	if plan.Status != nil {
		if err := a.writeStatus(ctx, exp, obj, plan.Status); err != nil {
			return err
		}
		if a.spans.Enabled() {
			a.spans.Record(ctx, startSpans(job, obj.GetCreationTimestamp().Time, a.kind.Status(obj), plan.Status, pods)...)
		}
	}
	if plan.Confirm || plan.Status != nil {
		exp.departed.prune()
	}
	a.record(ctx, obj, plan.Events) // the calls below can fail, and no later pass decides these events again
	if err := a.deletePods(ctx, job, plan.Delete, exp); err != nil {
		return err
	}
	if err := a.create(ctx, job, &plan, exp); err != nil {
		return err
	}
	for _, o := range plan.Update {
		if err := a.client.Update(ctx, o.(client.Object)); err != nil {
			return fmt.Errorf("updating %s: %w", describe(o), staleIfConflict(err))
		}
	}
	if err := a.stopPods(ctx, job, plan.Stop); err != nil {
		return err
	}
	if plan.DeleteJob {
		if plan.Status != nil {
			obj = exp.written
		}
		return a.deleteJob(ctx, obj)
	}
	return nil
}

// record writes events for the decisions of the engine and logs them. Decisions that happen about once in a job's life
// are logged at level 0.
func (a *actuator) record(ctx context.Context, obj kinds.Object, events []engine.Event) {
	for _, e := range events {
		a.recorder.Record(obj, e)
		logger := log.FromContext(ctx)
		switch e.Reason {
		case batch.EventIncident, batch.EventRecovered, batch.EventReplicaRestarted, batch.EventReplicaDisrupted, batch.EventNodeLost:
			logger = logger.V(2)
		}
		logger = logger.WithValues("job", klog.KObj(obj), "reason", e.Reason)
		if len(e.Replicas) > 0 {
			logger = logger.WithValues("replicas", e.Replicas)
		}
		logger.Info("Job event", "message", e.Message)
	}
}

// confirm checks that the job on the API server still has the version that was read. It returns errStale if not.
func (a *actuator) confirm(ctx context.Context, obj kinds.Object) error {
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(batch.GroupVersion.WithKind(a.kind.Name))
	if err := a.live.Get(ctx, client.ObjectKeyFromObject(obj), live); err != nil {
		return fmt.Errorf("confirming %s %s/%s: %w", a.kind.Name, obj.GetNamespace(), obj.GetName(), staleIfGone(err))
	}
	if live.UID != obj.GetUID() || live.ResourceVersion != obj.GetResourceVersion() {
		return errStale
	}
	return nil
}

func (a *actuator) deleteJob(ctx context.Context, obj kinds.Object) error {
	uid, version := obj.GetUID(), obj.GetResourceVersion()
	err := a.client.Delete(ctx, obj, client.Preconditions{UID: &uid, ResourceVersion: &version},
		client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s %s/%s after its time to live: %w", a.kind.Name, obj.GetNamespace(), obj.GetName(), staleIfConflict(err))
	}
	return nil
}

// create creates the objects of a plan: first the objects that pods depend on, one after the other, and then the pods
// concurrently. If all succeed, it clears the refusals.
func (a *actuator) create(ctx context.Context, job *engine.Job, plan *engine.Plan, exp *expectations) error {
	if len(plan.Create)+len(plan.Pods) == 0 {
		return nil
	}
	for _, o := range plan.Create {
		if err := a.createOne(ctx, job, o, exp); err != nil {
			return err
		}
	}
	if err := a.createPods(ctx, job, plan.Pods, exp); err != nil {
		return err
	}
	exp.refusals = nil
	return nil
}

// createPods creates pods concurrently. It builds each pod only when the pod may be sent, and keeps created pods in exp
// with only the fields that a cache would keep.
func (a *actuator) createPods(ctx context.Context, job *engine.Job, all []engine.NewPod, exp *expectations) error {
	return inParallel(a.maxPerJob, all, func(n engine.NewPod) (*corev1.Pod, error) {
		var pod *corev1.Pod
		err := a.inFlight.do(job.Roles[n.Role].PodSize, func() error {
			pod = job.Pod(n)
			whole := pod.Labels
			err := a.client.Create(ctx, pod)
			if pod = trimPod(pod); err != nil {
				pod.Labels = whole // adopt compares these labels
			}
			return err
		})
		return pod, err
	}, func(pod *corev1.Pod, err error) error {
		if err != nil {
			return a.createError(ctx, job, pod, err, exp)
		}
		exp.created[pod.Name] = madePod{pod, a.clock.Now().Add(cacheLag)}
		return nil
	})
}

// deletePods deletes pods concurrently and records the deletions in exp. A pod that no longer exists counts as deleted.
// A pod whose preconditions no longer hold is not deleted; deletePods then returns errStale, unless there is another
// error.
func (a *actuator) deletePods(ctx context.Context, job *engine.Job, all []engine.Deletion, exp *expectations) error {
	var stale error
	err := inParallel(a.maxPerJob, all, func(d engine.Deletion) (engine.Deletion, error) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: d.Name}}
		return d, a.inFlight.do(0, func() error { return a.client.Delete(ctx, pod, deleteOptions(&d)...) })
	}, func(d engine.Deletion, err error) error {
		switch {
		case apierrors.IsConflict(err):
			stale = fmt.Errorf("deleting pod %s/%s: %w", job.Namespace, d.Name, errStale)
			return nil
		case client.IgnoreNotFound(err) != nil:
			return fmt.Errorf("deleting pod %s/%s: %w", job.Namespace, d.Name, err)
		}
		exp.deleted[d.UID] = a.clock.Now()
		return nil
	})
	if err != nil {
		return err
	}
	return stale
}

func deleteOptions(d *engine.Deletion) []client.DeleteOption {
	as := client.Preconditions{UID: &d.UID}
	if d.ResourceVersion != "" {
		as.ResourceVersion = &d.ResourceVersion
	}
	if d.Force {
		return []client.DeleteOption{as, client.GracePeriodSeconds(0)}
	}
	return []client.DeleteOption{as}
}

// stopPods makes the kubelets stop the containers of pods without deleting the pods. It ignores pods that no longer
// exist or have been replaced.
func (a *actuator) stopPods(ctx context.Context, job *engine.Job, all []engine.Stop) error {
	return inParallel(a.maxPerJob, all, func(s engine.Stop) (engine.Stop, error) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: s.Name}}
		patch := fmt.Sprintf(`{"metadata":{"uid":%q},"spec":{"activeDeadlineSeconds":%d}}`, s.UID, engine.StopDeadline)
		return s, a.inFlight.do(0, func() error { return a.client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, []byte(patch))) })
	}, func(s engine.Stop, err error) error {
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // conflict: a new pod has the name
			return fmt.Errorf("stopping pod %s/%s, whose main container has ended: %w", job.Namespace, s.Name, err)
		}
		return nil
	})
}

// inParallel sends a request for each item, up to limit of them concurrently, until settle returns an error. It calls
// settle with one outcome at a time: with every success, and with every failure before the first error of settle. It
// returns that error.
func inParallel[In, Out any](limit int, all []In, send func(In) (Out, error), settle func(Out, error) error) error {
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		first error
		next  int
	)
	take := func() (item In, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if first != nil || next == len(all) {
			return item, false
		}
		next++
		return all[next-1], true
	}
	for range min(len(all), limit) {
		wg.Go(func() {
			for item, ok := take(); ok; item, ok = take() {
				out, err := send(item)
				mu.Lock()
				if err == nil || first == nil {
					err = settle(out, err)
				}
				if first == nil {
					first = err
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return first
}

func (a *actuator) createOne(ctx context.Context, job *engine.Job, o engine.Object, exp *expectations) error {
	if err := a.client.Create(ctx, o.(client.Object)); err != nil {
		if err = a.createError(ctx, job, o, err, exp); err != nil {
			return err
		}
	}
	until := a.clock.Now().Add(cacheLag)
	switch o := o.(type) {
	case *corev1.Service:
		exp.serviceUntil = until
	case *scheduling.PodGroup:
		exp.group, exp.groupUntil = o, until
	}
	return nil
}

func describe(o engine.Object) string {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	switch o.(type) {
	case *corev1.Pod:
		kind = "pod"
	case *corev1.Service:
		kind = "Service"
	case *scheduling.PodGroup:
		kind = "PodGroup"
	}
	return fmt.Sprintf("%s %q", kind, o.GetName())
}

func staleIfConflict(err error) error {
	if apierrors.IsConflict(err) {
		return errStale
	}
	return err
}

func staleIfGone(err error) error {
	if apierrors.IsNotFound(err) {
		return errStale
	}
	return err
}

// shorten cuts a message so that it fits into the 1,024 bytes that the note of an event can hold.
func shorten(s string) string {
	const limit = 1000
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + " …" // the cut may have split a character
}
