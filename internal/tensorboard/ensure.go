package tensorboard

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/tensorboard/board"
)

// ensure creates or updates the Service and the Deployment of a TensorBoard. It returns a Refusal if the spec is
// invalid, if the API server refuses an object, or if the name of an object is taken. The Deployment is nil if the spec
// is invalid, if one of the objects could not be created, or if the cache does not show the Deployment yet.
func (r *reconciler) ensure(ctx context.Context, tb *tensorboard.TensorBoard) (*appsv1.Deployment, *board.Refusal, error) {
	logs, errs := board.Convert(&tb.Spec)
	if len(errs) > 0 {
		refusal := &board.Refusal{Reason: tensorboard.ReasonInvalidSpec, Message: errs.ToAggregate().Error()}
		return nil, refusal, r.stop(ctx, tb)
	}
	if refusal, err := r.ensureOne(ctx, tb, board.Service(tb), &corev1.Service{}); refusal != nil || err != nil {
		return nil, refusal, err
	}
	want, live := board.Deployment(tb, logs, r.opts.Board), &appsv1.Deployment{}
	if refusal, err := r.ensureOne(ctx, tb, want, live); refusal != nil || err != nil || !metav1.IsControlledBy(live, tb) {
		return nil, refusal, err
	}
	if !board.Differs(live, want) {
		return live, nil, nil
	}
	next := board.Updated(live, want)
	if err := r.client.Update(ctx, next); err != nil {
		if isPermanent(err) {
			return live, &board.Refusal{Reason: tensorboard.ReasonCreateRefused, Message: err.Error()}, nil
		}
		return live, nil, fmt.Errorf("updating Deployment %s/%s: %w", want.Namespace, want.Name, err)
	}
	return next, nil, nil
}

// stop scales the Deployment of a TensorBoard with an invalid spec to zero if the TensorBoard is suspended; otherwise
// it does nothing.
func (r *reconciler) stop(ctx context.Context, tb *tensorboard.TensorBoard) error {
	if !board.Suspended(tb) {
		return nil
	}
	live := &appsv1.Deployment{}
	err := r.owned.Get(ctx, client.ObjectKey{Namespace: tb.Namespace, Name: board.Name(tb)}, live)
	if err != nil || !metav1.IsControlledBy(live, tb) {
		return client.IgnoreNotFound(err)
	}
	next := board.Stopped(live)
	if *next.Spec.Replicas == *live.Spec.Replicas {
		return nil
	}
	if err := r.client.Update(ctx, next); err != nil {
		return fmt.Errorf("stopping Deployment %s/%s: %w", live.Namespace, live.Name, err)
	}
	return nil
}

// ensureOne reads an object of a TensorBoard into live. If the cache shows no object, or one of another owner, it
// creates the object; live then does not belong to the TensorBoard.
func (r *reconciler) ensureOne(ctx context.Context, tb *tensorboard.TensorBoard, want, live client.Object) (*board.Refusal, error) {
	kind := want.GetObjectKind().GroupVersionKind().Kind
	err := r.owned.Get(ctx, client.ObjectKeyFromObject(want), live)
	if err == nil && metav1.IsControlledBy(live, tb) {
		return nil, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading %s %s/%s: %w", kind, want.GetNamespace(), want.GetName(), err)
	}
	err = r.client.Create(ctx, want)
	switch {
	case err == nil:
		return nil, nil
	case apierrors.IsAlreadyExists(err):
		return r.checkOwner(ctx, tb, want)
	case isPermanent(err):
		return &board.Refusal{Reason: tensorboard.ReasonCreateRefused, Message: err.Error()}, nil
	}
	return nil, fmt.Errorf("creating %s %s/%s: %w", kind, want.GetNamespace(), want.GetName(), err)
}

// checkOwner returns a refusal if the existing object with the kind and name of want does not belong to the
// TensorBoard.
func (r *reconciler) checkOwner(ctx context.Context, tb *tensorboard.TensorBoard, want client.Object) (*board.Refusal, error) {
	gvk := want.GetObjectKind().GroupVersionKind()
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(gvk)
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(want), live); err != nil {
		return nil, fmt.Errorf("reading the owner of %s %s/%s: %w", gvk.Kind, want.GetNamespace(), want.GetName(), err)
	}
	if metav1.IsControlledBy(live, tb) {
		return nil, nil // the cache is stale
	}
	owner := "nobody (it has no controller)"
	if ref := metav1.GetControllerOfNoCopy(live); ref != nil {
		owner = fmt.Sprintf("%s %q", ref.Kind, ref.Name)
	}
	return &board.Refusal{Reason: tensorboard.ReasonNameTaken, Message: fmt.Sprintf(
		"%s %q exists and belongs to %s: delete that object, or rename the TensorBoard", gvk.Kind, want.GetName(), owner)}, nil
}

// isPermanent reports whether the API server would probably refuse the same request again. This is so if its answer has
// a code from 400 to 499, except the codes for conflicts, missing or existing objects, timeouts, throttling and missing
// authentication.
func isPermanent(err error) bool {
	switch {
	case apierrors.IsConflict(err), apierrors.IsTooManyRequests(err), apierrors.IsUnauthorized(err), apierrors.IsTimeout(err),
		apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500
}
