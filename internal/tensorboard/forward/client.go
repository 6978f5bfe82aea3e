// Package forward makes TensorBoards available to a browser on this machine, with the rights of a user. It finds the
// TensorBoard of a job, resumes the TensorBoard, waits until it answers, and serves it at a local address. Start
// reading at Client and Boards.
package forward

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/observed"
	"tensorstack.dev/batch/internal/tensorboard/board"
)

// Client accesses the TensorBoards of a cluster with the rights of a user.
type Client struct {
	Config  *rest.Config
	Objects dynamic.Interface
	Core    corev1client.CoreV1Interface
	// Manager is the name of the field manager of changes.
	Manager string
}

// In returns the client for TensorBoards in a namespace.
func (c *Client) In(namespace string) dynamic.ResourceInterface {
	return c.Objects.Resource(tensorboard.GroupVersion.WithResource("tensorboards")).Namespace(namespace)
}

// Get returns a TensorBoard. It returns the errors of the API server unchanged.
func (c *Client) Get(ctx context.Context, namespace, name string) (*tensorboard.TensorBoard, error) {
	raw, err := c.In(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	tb := &tensorboard.TensorBoard{}
	if err := kruntime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, tb); err != nil {
		return nil, fmt.Errorf("reading tensorboard/%s: %w", name, err)
	}
	return tb, nil
}

// Of returns the TensorBoard of a job. If the job has none, it returns an error with the reason.
func (c *Client) Of(ctx context.Context, j *observed.Job) (*tensorboard.TensorBoard, error) {
	tb, err := c.Get(ctx, j.GetNamespace(), j.GetName())
	switch {
	case err == nil && metav1.IsControlledBy(tb, j.Object):
		return tb, nil
	case err != nil && !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("getting tensorboard/%s: %w", j.GetName(), err)
	case j.Kind.Training == nil:
		return nil, fmt.Errorf("%s has no TensorBoard, because jobs of this kind have none: create a TensorBoard that reads its logs", j.Ref())
	}
	spec, status := j.Kind.Training(j.Object)
	switch {
	case spec.TensorBoardSpec == nil:
		return nil, fmt.Errorf("%s has no TensorBoard, because it was created without tensorboardSpec: create a TensorBoard that reads its logs", j.Ref())
	case status.TensorBoard != nil && status.TensorBoard.Note != "":
		return nil, fmt.Errorf("%s has no TensorBoard: %s", j.Ref(), status.TensorBoard.Note)
	}
	return nil, fmt.Errorf("%s has no TensorBoard yet: is the operator running?", j.Ref())
}

// Resume resumes a suspended TensorBoard: it sets spec.suspend to false.
func (c *Client) Resume(ctx context.Context, tb *tensorboard.TensorBoard) error {
	patch := []byte(`{"spec":{"suspend":false}}`)
	if _, err := c.In(tb.Namespace).Patch(ctx, tb.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: c.Manager}); err != nil {
		return fmt.Errorf("resuming tensorboard/%s: %w", tb.Name, err)
	}
	return nil
}

// poll is the interval at which Await reads a TensorBoard.
const poll = 300 * time.Millisecond

// Await waits until a TensorBoard answers, and returns it. While it waits, it calls report with the condition Ready
// whenever the condition's message changes. If report returns an error, or if the TensorBoard cannot be read, Await
// returns this error. If ctx ends, Await returns the cause.
func (c *Client) Await(ctx context.Context, namespace, name string, report func(tensorboard.Condition) error) (*tensorboard.TensorBoard, error) {
	reported := ""
	for {
		tb, err := c.Get(ctx, namespace, name)
		if err != nil && ctx.Err() == nil {
			return nil, fmt.Errorf("getting tensorboard/%s: %w", name, err)
		}
		if err == nil && tb.Status.ObservedGeneration == tb.Generation {
			ready := board.ReadyCondition(tb)
			if ready.Status == metav1.ConditionTrue && tb.Status.Pod != nil {
				return tb, nil
			}
			if ready.Message != reported {
				reported = ready.Message
				if err := report(ready); err != nil {
					return nil, err
				}
			}
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(poll):
		}
	}
}

// podOf returns the current pod of a TensorBoard.
func (c *Client) podOf(ctx context.Context, namespace, name string) (tensorboard.PodReference, error) {
	tb, err := c.Get(ctx, namespace, name)
	if err != nil {
		return tensorboard.PodReference{}, fmt.Errorf("getting tensorboard/%s: %w", name, err)
	}
	if tb.Status.Pod == nil {
		return tensorboard.PodReference{}, fmt.Errorf("tensorboard/%s has no pod: %s", name, board.ReadyCondition(tb).Message)
	}
	return tb.Status.Pod.Reference, nil
}
