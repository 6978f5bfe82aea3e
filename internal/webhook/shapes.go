package webhook

import (
	"context"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/queue"
)

// unchecked is what users are told where the size of pods could not be looked at. Nobody is refused for that: the scheduler
// lets no pod start that is too large.
const unchecked = "the size of the pods could not be held against that of their queue's resourceShapeProfile: if they are too large, they wait, and say so"

// queueShapes tells how large the pods of a queue may be. queue.Shapes does.
type queueShapes interface {
	OfQueue(ctx context.Context, name string) (*queue.Shape, error)
}

// tooLarge lists the roles of a job whose pods its queue does not take.
func tooLarge(ctx context.Context, shapes queueShapes, job *engine.Job) (faults field.ErrorList, warning string) {
	if job.Gang == nil {
		return nil, ""
	}
	shape, err := shapes.OfQueue(ctx, job.Gang.Queue)
	if err != nil {
		log.FromContext(ctx).Error(err, "Looking for the resource shape of a queue")
		return nil, unchecked
	}
	if shape != nil && shape.Problem != "" {
		return field.ErrorList{field.Forbidden(field.NewPath("spec", "scheduler", "t9kScheduler", "queue"), shape.Fault(nil))}, ""
	}
	for i := range job.Roles {
		if fault := shape.Fault(&job.Roles[i].Template.Spec); fault != "" {
			faults = append(faults, field.Forbidden(field.NewPath("spec", "replicaSpecs").Index(i).Child("template", "spec"), fault))
		}
	}
	return faults, ""
}

// podValidator says no to pods that are larger than their queue allows.
type podValidator struct {
	decoder admission.Decoder
	shapes  podShapes
}

// podShapes tells how large a pod may be, by its namespace and labels. queue.Shapes does.
type podShapes interface {
	OfPod(ctx context.Context, namespace string, labels map[string]string) (*queue.Shape, error)
}

// Handle answers one request. What is no creation is allowed.
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
		log.FromContext(ctx).Error(err, "Looking for the resource shape of a pod's queue")
		return admission.Allowed("").WithWarnings(unchecked)
	}
	if fault := shape.Fault(&pod.Spec); fault != "" {
		return admission.Denied(fault)
	}
	return admission.Allowed("")
}
