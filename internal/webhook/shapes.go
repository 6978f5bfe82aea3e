package webhook

import (
	"context"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/queue"
)

// unchecked is the warning that users get if the webhook could not check the size of pods. The request is then allowed,
// because the scheduler also checks the size of pods.
const unchecked = "the size of the pods could not be compared with their queue's resourceShapeProfile: pods that are too large will wait, and their PodScheduled condition says why"

// queueShapes looks up the resource shape of a queue. The shape is nil if the queue does not exist or does not limit
// the size of its pods. queue.Shapes implements queueShapes.
type queueShapes interface {
	OfQueue(ctx context.Context, name string) (*queue.Shape, error)
}

// tooLarge returns an error for each role whose pods are larger than the job's queue allows, or a single error if the
// profile of the queue cannot be used. If it cannot look up the shape of the queue, it returns a warning and no errors.
// A job without a gang has no errors and no warning.
func tooLarge(ctx context.Context, shapes queueShapes, job *engine.Job) (errs field.ErrorList, warning string) {
	if job.Gang == nil {
		return nil, ""
	}
	shape, err := shapes.OfQueue(ctx, job.Gang.Queue)
	if err != nil {
		log.FromContext(ctx).Error(err, "Cannot read the resource shape of the queue; the pods of the job are not checked", "job", klog.KRef(job.Namespace, job.Name), "queue", job.Gang.Queue)
		return nil, unchecked
	}
	if shape != nil && shape.Problem != "" {
		return field.ErrorList{field.Forbidden(field.NewPath("spec", "scheduler", "t9kScheduler", "queue"), shape.Refusal(nil))}, ""
	}
	for i := range job.Roles {
		if refusal := shape.Refusal(&job.Roles[i].Template.Spec); refusal != "" {
			errs = append(errs, field.Forbidden(field.NewPath("spec", "replicaSpecs").Index(i).Child("template", "spec"), refusal))
		}
	}
	return errs, ""
}

// podValidator is the validating webhook that refuses pods that are larger than their queue allows.
type podValidator struct {
	decoder admission.Decoder
	shapes  podShapes
}

// podShapes looks up the resource shape of a pod's queue by the pod's namespace and labels. The shape is nil if the
// queue does not exist, does not limit the size of its pods, or is not known yet. queue.Shapes implements podShapes.
type podShapes interface {
	OfPod(ctx context.Context, namespace string, labels map[string]string) (*queue.Shape, error)
}

// Handle answers one request. It checks only the creation of pods.
func (v *podValidator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.SubResource != "" || req.Operation != admissionv1.Create {
		return admission.Allowed("")
	}
	pod := &corev1.Pod{}
	if err := v.decoder.Decode(req, pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	shape, err := v.shapes.OfPod(ctx, req.Namespace, pod.Labels)
	if err != nil {
		log.FromContext(ctx).Error(err, "Cannot read the resource shape of the pod's queue; the pod is not checked", "pod", klog.KRef(req.Namespace, pod.Name))
		return admission.Allowed("").WithWarnings(unchecked)
	}
	if refusal := shape.Refusal(&pod.Spec); refusal != "" {
		return admission.Denied(refusal)
	}
	return admission.Allowed("")
}
