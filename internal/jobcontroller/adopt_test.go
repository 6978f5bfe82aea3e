package jobcontroller

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// patcher is a client that returns err for each patch and keeps the last patch.
type patcher struct {
	client.Client
	err  error
	sent string
}

func (p *patcher) Patch(_ context.Context, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(o)
	p.sent = string(data)
	return errors.Join(err, p.err)
}

// TestAdoptRestoresLostLabels verifies that adopt patches a pod only if the label with the job's name is lost or
// changed, and that the patch contains only identity labels and has the UID of the pod as a precondition. If the pod
// was deleted or replaced, the result is errStale. Only a forbidden patch is recorded as a refusal.
func TestAdoptRestoresLostLabels(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	own := map[string]string{batch.LabelJobName: "job", batch.LabelJobKind: "GenericJob", batch.LabelReplicaRank: "1", batch.LabelReplicaAttempt: "3", "mine": "yes"}
	const patch = `{"metadata":{"labels":{"batch.tensorstack.dev/job-kind":"GenericJob","batch.tensorstack.dev/job-name":"job",` +
		`"batch.tensorstack.dev/replica-rank":"1"},"uid":"u"}}`
	for name, test := range map[string]struct {
		live    map[string]string
		err     error
		sent    string
		stale   bool
		refusal string
	}{
		"the cache is late":              {live: own},
		"the label is lost":              {live: map[string]string{"mine": "yes"}, sent: patch},
		"all labels are lost":            {sent: patch},
		"the label names another job":    {live: map[string]string{batch.LabelJobName: "other"}, sent: patch},
		"the pod was deleted":            {err: apierrors.NewNotFound(pods, "p"), sent: patch, stale: true},
		"there is a new pod":             {err: apierrors.NewConflict(pods, "p", errors.New("uid")), sent: patch, stale: true},
		"a policy forbids it":            {err: apierrors.NewForbidden(pods, "p", errors.New("a policy says no")), sent: patch, refusal: "a policy says no; put it back or delete the pod"},
		"the API server does not answer": {err: errors.New("connection refused"), sent: patch},
		"the API server is overloaded":   {err: apierrors.NewTooManyRequests("later", 1), sent: patch},
	} {
		t.Run(name, func(t *testing.T) {
			c, m := &patcher{err: test.err}, &expectations{}
			want := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", Labels: own}}
			live := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "u", Labels: test.live}}
			err := (&actuator{client: c}).adopt(t.Context(), want, live, m)
			if (err != nil) != (test.err != nil) || errors.Is(err, errStale) != test.stale {
				t.Errorf("the error is %v", err)
			}
			if c.sent != test.sent {
				t.Errorf("the patch is %s", c.sent)
			}
			if refused := len(m.refusals) > 0; refused != (test.refusal != "") || refused && !strings.Contains(m.refusals[0].Message, test.refusal) {
				t.Errorf("the refusals are %+v", m.refusals)
			}
		})
	}
}
