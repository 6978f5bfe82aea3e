package jobcontroller

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// createError classifies the error of a creation. If the object exists and belongs to the job, because the cache was
// stale or an answer was lost, the creation counts as successful: createError returns nil unless adopt fails. If the
// API server refuses the object, or another object has its name, createError records this in exp, so that the next pass
// writes it to the job's status.
func (a *actuator) createError(ctx context.Context, job *engine.Job, o engine.Object, err error, exp *expectations) error {
	refusal := engine.Refusal{Object: describe(o), Reason: batch.ReasonCreateRefused, Message: err.Error()}
	if apierrors.IsAlreadyExists(err) {
		live, liveErr := a.liveOf(ctx, o)
		if liveErr != nil {
			return liveErr
		}
		if owner := metav1.GetControllerOfNoCopy(live); owner != nil && owner.UID == job.UID {
			return a.adopt(ctx, o, live, exp)
		}
		refusal.Reason, refusal.Message, err = batch.ReasonNameTaken, nameTaken(live, job), errNameTaken
	} else if !refused(err) {
		return fmt.Errorf("creating %s: %w", describe(o), err)
	} else if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		err = errNamespaceTerminating
	}
	exp.refusals = []engine.Refusal{refusal}
	return fmt.Errorf("creating %s: %w", describe(o), err)
}

// liveOf reads the metadata of the live object that has the name of o. It returns errStale if there is none.
func (a *actuator) liveOf(ctx context.Context, o engine.Object) (*metav1.PartialObjectMetadata, error) {
	gvk, err := a.client.GroupVersionKindFor(o)
	if err != nil {
		return nil, fmt.Errorf("reading the owner of %s: %w", describe(o), err)
	}
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(gvk)
	switch err := a.live.Get(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: o.GetName()}, live); {
	case apierrors.IsNotFound(err):
		return nil, errStale // it no longer exists, so the next pass creates the job's own object
	case err != nil:
		return nil, fmt.Errorf("reading the owner of %s: %w", describe(o), err)
	}
	return live, nil
}

// nameTaken returns the message for a name that the job needs and another object has. The message names the owner of
// that object and says what the user can do or what the job waits for.
func nameTaken(live *metav1.PartialObjectMetadata, job *engine.Job) string {
	owner, ref := "nobody (it has no controller)", metav1.GetControllerOfNoCopy(live)
	if ref != nil {
		owner = fmt.Sprintf("%s %q", ref.Kind, ref.Name)
	}
	switch {
	case ref != nil && ref.Kind == job.Kind && ref.Name == job.Name && live.DeletionTimestamp != nil:
		return fmt.Sprintf("an object of that name belongs to the previous %s and has not ended yet; the job continues when it has", owner)
	case ref != nil && ref.Kind == job.Kind && ref.Name == job.Name:
		return fmt.Sprintf("an object of that name belongs to the previous %s, which was deleted; the job continues when the cluster has deleted the object", owner)
	case live.DeletionTimestamp != nil:
		return fmt.Sprintf("an object of that name belongs to %s and is being deleted; the job continues when it is gone", owner)
	}
	return fmt.Sprintf("an object of that name belongs to %s; delete or rename that object or the job", owner)
}

// refused reports whether an error is an answer of the API server that an immediate repetition of the request would
// meet again.
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
