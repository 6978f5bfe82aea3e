package webhook

import (
	"context"
	"encoding/json"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"tensorstack.dev/batch/internal/kinds"
)

// defaulter is the mutating webhook that sets the defaults of the job fields that other programs read.
type defaulter struct{ decoder admission.Decoder }

// Handle answers one request. The patch contains only the fields that get a default, because it is the difference of
// two marshalled Go objects. A comparison with the object that the client sent would also patch every field that the Go
// types encode differently.
func (d *defaulter) Handle(_ context.Context, req admission.Request) admission.Response {
	if req.SubResource != "" || req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return admission.Allowed("")
	}
	kind, err := kinds.ByName(req.Kind.Kind)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if kind.Default == nil {
		return admission.Allowed("")
	}
	obj := kind.New()
	if err := d.decoder.DecodeRaw(req.Object, obj); err != nil {
		return admission.Allowed("") // the API server reports the error with more detail
	}
	before, err := json.Marshal(obj)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	kind.Default(obj)
	after, err := json.Marshal(obj)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(before, after)
}
