// Package steer changes jobs on behalf of a user: it pauses, resumes, debugs, scales, copies and deletes them. A
// request for a job that was replaced by another job of the same name fails and does not change the other job. The
// command line and the console share it. Start reading at Client.
package steer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/observed"
)

// Client changes jobs with the rights of the user of Objects.
type Client struct {
	Objects dynamic.Interface
	// Manager is the field manager of the writes.
	Manager string
}

func (c Client) jobs(j *observed.Job) dynamic.ResourceInterface {
	return c.Objects.Resource(batch.GroupVersion.WithResource(j.Kind.Plural)).Namespace(j.GetNamespace())
}

// ErrReplaced means that a job was deleted and that another job has its name now.
var ErrReplaced = errors.New("it was deleted, and another job has its name now")

// explain returns ErrReplaced for an error that says that the job in the cluster has another UID than the request
// names. It takes every conflict for such an error, because the requests contain no resourceVersion. It returns any
// other error unchanged.
func explain(err error) error {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return err
	}
	details := status.Status().Details
	changed := details != nil && slices.ContainsFunc(details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
	if apierrors.IsConflict(err) || apierrors.IsInvalid(err) && changed {
		return ErrReplaced
	}
	return err
}

// Switch names a mode in spec.runMode that can be enabled.
type Switch string

// The modes that can be enabled.
const (
	Pause Switch = "pause"
	Debug Switch = "debug"
)

// Set enables or disables a mode and returns the changed job. The error wraps ErrReplaced if another job has the name
// now.
func (c Client) Set(ctx context.Context, j *observed.Job, s Switch, on bool) (*unstructured.Unstructured, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": j.GetUID()}, "spec": map[string]any{"runMode": map[string]any{string(s): map[string]any{"enabled": on}}}})
	if err != nil {
		return nil, fmt.Errorf("writing the patch: %w", err)
	}
	raw, err := c.jobs(j).Patch(ctx, j.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: c.Manager})
	if err != nil {
		return nil, fmt.Errorf("changing %s: %w", j.Ref(), explain(err))
	}
	return raw, nil
}

// Resize sets the size of an elastic job through the scale subresource, as kubectl and autoscalers do. It returns a
// conflict if the job has changed since it was read.
func (c Client) Resize(ctx context.Context, j *observed.Job, n int) error {
	scale := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "autoscaling/v1",
		"kind":       "Scale",
		"metadata": map[string]any{
			"name": j.GetName(), "namespace": j.GetNamespace(), "resourceVersion": j.GetResourceVersion(),
		},
		"spec": map[string]any{"replicas": int64(n)},
	}}
	_, err := c.jobs(j).Update(ctx, scale, metav1.UpdateOptions{FieldManager: c.Manager}, "scale")
	return err
}

// Delete deletes a job with foreground propagation, so that the job is removed after its pods. It returns no error if
// the job is already deleted. It does not delete another job with the same name, and the error then wraps ErrReplaced.
func (c Client) Delete(ctx context.Context, j *observed.Job) error { return c.remove(ctx, j) }

// TryDelete returns the error with which Delete would fail, or nil. It deletes nothing.
func (c Client) TryDelete(ctx context.Context, j *observed.Job) error {
	return c.remove(ctx, j, metav1.DryRunAll)
}

func (c Client) remove(ctx context.Context, j *observed.Job, dryRun ...string) error {
	policy, uid := metav1.DeletePropagationForeground, j.GetUID()
	err := c.jobs(j).Delete(ctx, j.GetName(), metav1.DeleteOptions{PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &uid}, DryRun: dryRun})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting %s: %w", j.Ref(), explain(err))
	}
	return nil
}

// Read gets the job with j's kind, namespace and name from the API server. It does not compare UIDs: if j was deleted,
// the result may be another job of that name.
func (c Client) Read(ctx context.Context, j *observed.Job) (*unstructured.Unstructured, error) {
	raw, err := c.jobs(j).Get(ctx, j.GetName(), metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("getting %s: %w", j.Ref(), err)
	}
	return raw, nil
}

// Manifest returns a stored job as its user would submit it: without status and without what the cluster, clients and
// admission have added to its metadata.
func Manifest(raw *unstructured.Unstructured) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": raw.GetAPIVersion(), "kind": raw.GetKind()}}
	u.SetName(raw.GetName())
	u.SetNamespace(raw.GetNamespace())
	u.SetLabels(raw.GetLabels())
	u.SetAnnotations(without(raw.GetAnnotations(), "kubectl.kubernetes.io/last-applied-configuration", scheduling.AnnotationRequestedBy))
	u.Object["spec"] = raw.DeepCopy().Object["spec"]
	return u
}

// CopyOf returns the manifest of a copy of a stored job under a new name. The copy is neither paused nor in debug mode,
// and it belongs to no sweep.
func CopyOf(raw *unstructured.Unstructured, name string) *unstructured.Unstructured {
	u := Manifest(raw)
	u.SetName(name)
	u.SetLabels(without(u.GetLabels(), batch.LabelSweep))
	u.SetAnnotations(without(u.GetAnnotations(), batch.AnnotationParameters, batch.AnnotationSweepManifest))
	for _, s := range []Switch{Pause, Debug} {
		for _, spelling := range []string{"enabled", "enable"} {
			unstructured.RemoveNestedField(u.Object, "spec", "runMode", string(s), spelling)
		}
	}
	return u
}

// Copy creates the copy of a job that CopyOf describes, and returns it. If the new name is taken,
// apierrors.IsAlreadyExists is true for the error. The error wraps ErrReplaced if another job has the name of j now.
func (c Client) Copy(ctx context.Context, j *observed.Job, name string) (*unstructured.Unstructured, error) {
	raw, err := c.Read(ctx, j)
	if err != nil {
		return nil, err
	}
	if raw.GetUID() != j.GetUID() {
		return nil, fmt.Errorf("copying %s: %w", j.Ref(), ErrReplaced)
	}
	created, err := c.jobs(j).Create(ctx, CopyOf(raw, name), metav1.CreateOptions{FieldManager: c.Manager, FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		return nil, fmt.Errorf("creating %s: %w", observed.Ref(j.Kind, name), err)
	}
	return created, nil
}

// without removes keys from m and returns m; nil if m is then empty.
func without(m map[string]string, keys ...string) map[string]string {
	for _, key := range keys {
		delete(m, key)
	}
	if len(m) == 0 {
		return nil
	}
	return m
}
