package webhook

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// requesterAnnotator is the mutating webhook that records in scheduling.AnnotationRequestedBy who requested a new job's
// queue. It overwrites the annotation of a new job and keeps an annotation that a live job already has unchanged. The
// matchConditions in config/webhook/defaults.yaml select the jobs: jobs that name a queue, unless the user of the
// request may name another requester.
type requesterAnnotator struct{}

// Handle answers one request. It decodes only the metadata. The API server itself reports a spec that cannot be
// decoded.
func (requesterAnnotator) Handle(_ context.Context, req admission.Request) admission.Response {
	job, err := metadataOf(req.Object)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	note := ""
	switch {
	case req.SubResource != "":
	case req.Operation == admissionv1.Create:
		note = requestedBy(&req.UserInfo)
	case req.Operation == admissionv1.Update:
		old, err := metadataOf(req.OldObject)
		if err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		note = old.Annotations[scheduling.AnnotationRequestedBy]
	}
	if note == "" || note == job.Annotations[scheduling.AnnotationRequestedBy] {
		return admission.Allowed("")
	}
	before, err := json.Marshal(job)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	metav1.SetMetaDataAnnotation(&job.ObjectMeta, scheduling.AnnotationRequestedBy, note)
	after, err := json.Marshal(job)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(before, after)
}

func metadataOf(raw runtime.RawExtension) (*metav1.PartialObjectMetadata, error) {
	o := &metav1.PartialObjectMetadata{}
	return o, json.Unmarshal(raw.Raw, o)
}

// quoting escapes the characters that CEL's function strings.quote escapes. The policy t9k-noted computes the expected
// annotation with this function and compares it with the actual one.
var quoting = strings.NewReplacer("\a", `\a`, "\b", `\b`, "\f", `\f`, "\n", `\n`, "\r", `\r`, "\t", `\t`, "\v", `\v`, `\`, `\\`, `"`, `\"`)

// requestedBy returns the value of scheduling.AnnotationRequestedBy for a user: the name and the groups of the user, as
// a list in JSON with the escapes of quoting.
func requestedBy(user *authenticationv1.UserInfo) string {
	var list strings.Builder
	list.WriteString(`["` + quoting.Replace(user.Username) + `"`)
	for _, group := range user.Groups {
		list.WriteString(`,"` + quoting.Replace(group) + `"`)
	}
	return list.String() + "]"
}
