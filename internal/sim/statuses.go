package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	restfake "k8s.io/client-go/rest/fake"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
)

var codecs = serializer.NewCodecFactory(scheme).WithoutConversion()

// statuses returns the client that writes an operator's statuses.
func (o *operator) statuses() rest.Interface {
	return &restfake.RESTClient{
		NegotiatedSerializer: codecs,
		GroupVersion:         batch.GroupVersion,
		VersionedAPIPath:     "/apis/" + batch.GroupVersion.String(),
		Client:               restfake.CreateHTTPClient(o.putStatus),
	}
}

// putStatus answers the request that writes a status.
func (o *operator) putStatus(req *http.Request) (resp *http.Response, err error) {
	sent := o.w.kind.New()
	if err := json.NewDecoder(req.Body).Decode(sent); err != nil {
		return nil, fmt.Errorf("decoding a status: %w", err)
	}
	o.forgetLate(o.w.kind.Status(sent))
	var version string
	err = o.call(func() error {
		o.w.readAt = o.liveAt
		version, err = o.w.writeStatus(sent)
		return err
	})
	var refused apierrors.APIStatus
	switch {
	case errors.As(err, &refused):
		status := refused.Status()
		return answer(int(status.Code), &status)
	case err != nil:
		return nil, err
	}
	return answer(http.StatusOK, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}})
}

// maxVerdictWait is the longest time that the end of a job by its deadline waits for the watch to show the end of a
// deleted pod.
const maxVerdictWait = time.Second

// forgetLate marks the successes of deleted pods as ambiguous if a deadline ends the job and the cache shows the
// deletions too late.
func (o *operator) forgetLate(s *batch.JobStatus) {
	if reasonOf(s, batch.JobFailedCondition) != batch.ReasonDeadlineExceeded {
		return
	}
	for name := range o.w.past {
		if t := o.w.last(name); t.watched && o.podPos[name] <= t.deletion && o.w.now.Sub(t.deleted) >= maxVerdictWait {
			t.ambiguous = true
		}
	}
}

func answer(code int, body any) (*http.Response, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encoding an answer: %w", err)
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(data))}, nil
}

// writeStatus writes a status if the resourceVersion that it was sent with is current, and returns the new version.
func (w *world) writeStatus(sent kinds.Object) (version string, err error) {
	switch {
	case w.obj == nil:
		return "", notFound(w.kind.Plural, sent.GetName())
	case sent.GetResourceVersion() != w.obj.GetResourceVersion() || sent.GetUID() != w.obj.GetUID():
		return "", conflict(w.kind.Plural, sent.GetName(), "the object has been modified")
	}
	status := w.kind.Status(sent).DeepCopy()
	w.checkStatus(status)
	w.status = status
	w.jobChanged()
	return w.obj.GetResourceVersion(), nil
}
