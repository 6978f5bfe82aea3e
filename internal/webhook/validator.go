package webhook

import (
	"context"
	"errors"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"tensorstack.dev/batch/internal/kinds"
)

// validator is the validating webhook for jobs of all kinds.
type validator struct {
	decoder admission.Decoder
	limits  kinds.Limits
	shapes  queueShapes
}

// Handle answers one request. It checks creations and updates. It allows every other operation, and every change of a
// subresource or of a job that is being deleted.
func (v *validator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.SubResource != "" || req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return admission.Allowed("")
	}
	kind, err := kinds.ByName(req.Kind.Kind)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	obj, err := v.read(kind, req.Object)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if obj.GetDeletionTimestamp() != nil {
		return admission.Allowed("")
	}
	errs := kind.Validate(obj, v.limits)
	if req.Operation == admissionv1.Update {
		old, err := v.read(kind, req.OldObject)
		if err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		errs = v.changed(kind, obj, old, errs)
	}
	if len(errs) > 0 {
		return answer(req, nil, errs)
	}
	job := kind.Convert(obj)
	if len(job.Roles) == 0 { // an invalid job that cannot be interpreted, see changed
		return answer(req, nil, nil)
	}
	var warnings []string
	for _, w := range kind.Warnings(obj, job) {
		warnings = append(warnings, w.String())
	}
	if req.Operation == admissionv1.Create { // the queue and the templates of a live job do not change
		var unknown string
		if errs, unknown = tooLarge(ctx, v.shapes, job); unknown != "" {
			warnings = append(warnings, unknown)
		}
	}
	return answer(req, warnings, errs)
}

// changed returns the errors in an update. errs are the errors of the updated object. If the old object was already
// invalid, because it was created without this webhook, only the change itself is checked. Its owner can then still
// change the metadata, and the controller has already reported the errors in the job's status.
func (v *validator) changed(kind kinds.Kind, updated, old kinds.Object, errs field.ErrorList) field.ErrorList {
	if before := kind.Validate(old, v.limits); len(before) > 0 {
		errs = nil
	}
	return append(kind.ValidateUpdate(updated, old), errs...)
}

func (v *validator) read(kind kinds.Kind, raw runtime.RawExtension) (kinds.Object, error) {
	obj := kind.New()
	return obj, v.decoder.DecodeRaw(raw, obj)
}

// answer returns a response with all errors or, if there are none, one that allows the request and has the warnings.
// The status and the messages have the same form as those of errors that the API server finds by a CRD's own rules.
func answer(req admission.Request, warnings []string, errs field.ErrorList) admission.Response {
	if len(errs) == 0 {
		return admission.Allowed("").WithWarnings(warnings...)
	}
	invalid := apierrors.NewInvalid(schema.GroupKind{Group: req.Kind.Group, Kind: req.Kind.Kind}, req.Name, errs)
	var status apierrors.APIStatus
	errors.As(invalid, &status)
	result := status.Status()
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &result}}
}
