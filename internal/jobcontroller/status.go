package jobcontroller

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
)

// metadataOnly is the Accept header that requests an answer without the status that was just sent.
const metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

// statusClient returns the client that writes the statuses of a kind.
func statusClient(mgr ctrl.Manager, kind kinds.Kind) (rest.Interface, error) {
	c, err := apiutil.RESTClientForGVK(batch.GroupVersion.WithKind(kind.Name), true, false, mgr.GetConfig(),
		serializer.NewCodecFactory(mgr.GetScheme()), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("making the client of the statuses of %s: %w", kind.Plural, err)
	}
	return c, nil
}

// writeStatus writes the status with the resourceVersion that was read, so that it does not overwrite a newer status.
// It returns errStale if the job has changed or no longer exists. After a success, exp.written is the job with this
// status, and the metrics count the transition. Statuses are most of a controller's traffic, so the request leaves out
// the spec and the answer contains only metadata.
func (a *actuator) writeStatus(ctx context.Context, exp *expectations, obj kinds.Object, status *batch.JobStatus) error {
	fail := func(err error) error {
		return fmt.Errorf("writing the status of %s %s/%s: %w", a.kind.Name, obj.GetNamespace(), obj.GetName(), err)
	}
	sent := a.kind.New()
	sent.GetObjectKind().SetGroupVersionKind(batch.GroupVersion.WithKind(a.kind.Name))
	sent.SetNamespace(obj.GetNamespace())
	sent.SetName(obj.GetName())
	sent.SetUID(obj.GetUID())
	sent.SetResourceVersion(obj.GetResourceVersion())
	*a.kind.Status(sent) = *status
	if a.kind.Training != nil { // fields that other components write keep the values that were read
		_, read := a.kind.Training(obj)
		_, kept := a.kind.Training(sent)
		kept.TensorBoard = read.TensorBoard
	}
	body, err := json.Marshal(sent)
	if err != nil {
		return fail(err)
	}
	if exp.written == nil {
		exp.seenVersion = obj.GetResourceVersion()
	}
	exp.tried = true
	exp.sent.Store(status)
	answer, err := a.statuses.Put().Namespace(obj.GetNamespace()).Resource(a.kind.Plural).Name(obj.GetName()).SubResource("status").
		SetHeader("Accept", metadataOnly).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Raw()
	if err != nil {
		return fail(staleIfConflict(staleIfGone(err)))
	}
	written := &metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(answer, written); err != nil {
		return fail(err)
	}
	next := obj.DeepCopyObject().(kinds.Object)
	next.SetResourceVersion(written.ResourceVersion)
	*a.kind.Status(next) = *status
	exp.written, exp.writtenAt, exp.delayedAt = next, a.clock.Now(), time.Time{}
	changed := transitionOf(obj.GetCreationTimestamp().Time, a.kind.Status(obj), status)
	changed.count(a.kind.Name, status.Phase)
	return nil
}
