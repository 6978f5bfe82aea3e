package jobcontroller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
)

// maxOfJob is the number of creations and deletions of pods of one job in flight.
const maxOfJob = 32

var (
	// errStale means that the job is not the one that the caches showed.
	errStale = errors.New("the job has changed since it was read")
	// errNameTaken means that an object of somebody else has a name that the job needs.
	errNameTaken = errors.New("the name is taken")
)

// apply carries a plan out, in the order that engine.Plan gives, up to the first error.
func (r *reconciler) apply(ctx context.Context, obj kinds.Object, job *engine.Job, plan engine.Plan, m *memory) error {
	if plan.Confirm {
		if err := r.confirm(ctx, obj); err != nil {
			return err
		}
	}
	if plan.Status != nil {
		if err := r.writeStatus(ctx, m, obj, plan.Status); err != nil {
			return err
		}
	}
	r.tell(obj, plan.Events) // now: once the status is written nothing calls for them again, whatever fails below
	if err := r.deletePods(ctx, job, plan.Delete, m); err != nil {
		return err
	}
	if err := r.create(ctx, job, &plan, m); err != nil {
		return err
	}
	for _, o := range plan.Update {
		if err := r.client.Update(ctx, o.(client.Object)); err != nil {
			return fmt.Errorf("updating %s: %w", describe(o), staleIfConflict(err))
		}
	}
	if err := r.stopPods(ctx, job, plan.Stop); err != nil {
		return err
	}
	if plan.DeleteJob {
		if plan.Status != nil {
			obj = m.written
		}
		return r.deleteJob(ctx, obj)
	}
	return nil
}

func (r *reconciler) tell(obj kinds.Object, events []engine.Event) {
	for _, e := range events {
		recordEvent(r.recorder, obj, e)
	}
}

// confirm makes sure that the API server still has the job as it was read.
func (r *reconciler) confirm(ctx context.Context, obj kinds.Object) error {
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(batch.GroupVersion.WithKind(r.kind.Name))
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(obj), live); err != nil {
		return fmt.Errorf("confirming %s %s/%s: %w", r.kind.Name, obj.GetNamespace(), obj.GetName(), staleIfGone(err))
	}
	if live.UID != obj.GetUID() || live.ResourceVersion != obj.GetResourceVersion() {
		return errStale
	}
	return nil
}

func (r *reconciler) deleteJob(ctx context.Context, obj kinds.Object) error {
	uid, version := obj.GetUID(), obj.GetResourceVersion()
	err := r.client.Delete(ctx, obj, client.Preconditions{UID: &uid, ResourceVersion: &version},
		client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s %s/%s after its time to live: %w", r.kind.Name, obj.GetNamespace(), obj.GetName(), staleIfConflict(err))
	}
	return nil
}

// create makes the objects of a plan: one after the other what pods depend on, then the pods side by side.
func (r *reconciler) create(ctx context.Context, job *engine.Job, plan *engine.Plan, m *memory) error {
	if len(plan.Create)+len(plan.Pods) == 0 {
		return nil
	}
	for _, o := range plan.Create {
		if err := r.createOne(ctx, job, o, m); err != nil {
			return err
		}
	}
	if err := r.createPods(ctx, job, plan.Pods, m); err != nil {
		return err
	}
	m.refusals = nil
	return nil
}

// createPods makes pods side by side. It builds each when there is room to send it, and keeps what a cache would.
func (r *reconciler) createPods(ctx context.Context, job *engine.Job, all []engine.NewPod, m *memory) error {
	return sideBySide(all, func(n engine.NewPod) (*corev1.Pod, error) {
		var pod *corev1.Pod
		err := r.inFlight.do(job.Roles[n.Role].PodSize, func() error {
			pod = job.Pod(n)
			whole := pod.Labels
			err := r.client.Create(ctx, pod)
			if pod = trimPod(pod); err != nil {
				pod.Labels = whole // see adopt
			}
			return err
		})
		return pod, err
	}, func(pod *corev1.Pod, err error) error {
		if err != nil {
			return r.createError(ctx, job, pod, err, m)
		}
		m.created[pod.Name] = madePod{pod, time.Now().Add(cacheLag)}
		return nil
	})
}

// deletePods deletes pods side by side. Of those that are not as they were seen it deletes none; it returns errStale then.
func (r *reconciler) deletePods(ctx context.Context, job *engine.Job, all []engine.Deletion, m *memory) error {
	var stale error
	err := sideBySide(all, func(d engine.Deletion) (engine.Deletion, error) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: d.Name}}
		return d, r.inFlight.do(0, func() error { return r.client.Delete(ctx, pod, deleteOptions(&d)...) })
	}, func(d engine.Deletion, err error) error {
		switch {
		case apierrors.IsConflict(err):
			stale = fmt.Errorf("deleting pod %s/%s: %w", job.Namespace, d.Name, errStale)
			return nil
		case client.IgnoreNotFound(err) != nil:
			return fmt.Errorf("deleting pod %s/%s: %w", job.Namespace, d.Name, err)
		}
		m.deleted[d.UID] = time.Now()
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

// stopPods has kubelets stop pods that stay.
func (r *reconciler) stopPods(ctx context.Context, job *engine.Job, all []engine.Stop) error {
	return sideBySide(all, func(s engine.Stop) (engine.Stop, error) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: s.Name}}
		patch := fmt.Sprintf(`{"metadata":{"uid":%q},"spec":{"activeDeadlineSeconds":%d}}`, s.UID, engine.StopDeadline)
		return s, r.inFlight.do(0, func() error { return r.client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, []byte(patch))) })
	}, func(s engine.Stop, err error) error {
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // a conflict: the name has a new pod already
			return fmt.Errorf("stopping pod %s/%s, whose main container has ended: %w", job.Namespace, s.Name, err)
		}
		return nil
	})
}

// sideBySide sends a request for each item, several at a time, up to the first error. It has their outcomes settled one at a
// time: all successes, and failures up to the first that settle does not forgive.
func sideBySide[In, Out any](all []In, send func(In) (Out, error), settle func(Out, error) error) error {
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
	for range min(len(all), maxOfJob) {
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

func (r *reconciler) createOne(ctx context.Context, job *engine.Job, o engine.Object, m *memory) error {
	if err := r.client.Create(ctx, o.(client.Object)); err != nil {
		if err = r.createError(ctx, job, o, err, m); err != nil {
			return err
		}
	}
	until := time.Now().Add(cacheLag)
	switch o := o.(type) {
	case *corev1.Service:
		m.serviceUntil = until
	case *scheduling.PodGroup:
		m.group, m.groupUntil = o, until
	}
	return nil
}

// createError sorts out why an object could not be created. That it exists and is ours is no error: a cache was behind, or
// an answer was lost. What the API server refuses is kept, so that the next pass shows it on the job.
func (r *reconciler) createError(ctx context.Context, job *engine.Job, o engine.Object, err error, m *memory) error {
	refusal := engine.Refusal{Object: describe(o), Reason: batch.ReasonCreateRefused, Message: err.Error()}
	if apierrors.IsAlreadyExists(err) {
		live, liveErr := r.liveOf(ctx, o)
		if liveErr != nil {
			return liveErr
		}
		if owner := metav1.GetControllerOfNoCopy(live); owner != nil && owner.UID == job.UID {
			return r.adopt(ctx, o, live, m)
		}
		refusal.Reason, refusal.Message, err = batch.ReasonNameTaken, nameTaken(live, job), errNameTaken
	} else if !refused(err) {
		return fmt.Errorf("creating %s: %w", describe(o), err)
	}
	m.refusals = []engine.Refusal{refusal}
	return fmt.Errorf("creating %s: %w", describe(o), err)
}

// liveOf reads the live object of o's name.
func (r *reconciler) liveOf(ctx context.Context, o engine.Object) (*metav1.PartialObjectMetadata, error) {
	gvk, err := r.client.GroupVersionKindFor(o)
	if err != nil {
		return nil, fmt.Errorf("reading the owner of %s: %w", describe(o), err)
	}
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(gvk)
	switch err := r.live.Get(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: o.GetName()}, live); {
	case apierrors.IsNotFound(err):
		return nil, errStale // it has gone in the meantime: the next pass creates it
	case err != nil:
		return nil, fmt.Errorf("reading the owner of %s: %w", describe(o), err)
	}
	return live, nil
}

// nameTaken says whose the object is that has a name which the job needs, and what to do about it.
func nameTaken(live *metav1.PartialObjectMetadata, job *engine.Job) string {
	owner, ref := "nobody (it has no controller)", metav1.GetControllerOfNoCopy(live)
	if ref != nil {
		owner = fmt.Sprintf("%s %q", ref.Kind, ref.Name)
	}
	switch {
	case ref != nil && ref.Kind == job.Kind && ref.Name == job.Name && live.DeletionTimestamp != nil:
		return fmt.Sprintf("the one of the previous %s has not ended yet; the job goes on as soon as it has", owner)
	case ref != nil && ref.Kind == job.Kind && ref.Name == job.Name:
		return fmt.Sprintf("the one of the previous %s, which was deleted, is still there; the cluster deletes it, and the job goes on then", owner)
	case live.DeletionTimestamp != nil:
		return fmt.Sprintf("the name is taken by one that belongs to %s and is being deleted; the job goes on as soon as it is gone", owner)
	}
	return fmt.Sprintf("the name is taken by one that belongs to %s; delete or rename that, or the job", owner)
}

// refused tells an error that will come again from one of the moment.
func refused(err error) bool {
	switch {
	case apierrors.IsConflict(err), apierrors.IsTooManyRequests(err), apierrors.IsUnauthorized(err), apierrors.IsTimeout(err):
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500
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

// shorten keeps a message within what an Event holds, 1,024 bytes.
func shorten(s string) string {
	const limit = 1000
	if len(s) <= limit {
		return s
	}
	return s[:limit] + " …"
}
