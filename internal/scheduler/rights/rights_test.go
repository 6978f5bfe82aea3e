package rights

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

// TestRightsAskOnceAndForgetAnswers verifies that a right is unknown until the API server has answered, that it is
// asked for again only after answerTTL, and that a refusal names the user.
func TestRightsAskOnceAndForgetAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, asked := fake.NewClientset(), 0
		client.PrependReactor("create", "subjectaccessreviews", func(a k8stesting.Action) (bool, runtime.Object, error) {
			asked++
			review := a.(k8stesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
			review.Status.Allowed = review.Spec.User == "ann" && review.Spec.ResourceAttributes.Name == "q" && review.Spec.ResourceAttributes.Verb == "use"
			return true, review, nil
		})
		var r *Rights
		r = New(nil, client.AuthorizationV1().SubjectAccessReviews(), func(q Question, allowed bool) { r.Answer(q, allowed, time.Now()) })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { r.Run(ctx); close(done) }()
		for _, step := range []struct {
			by, why string
			after   time.Duration
			known   bool
			asked   int
		}{
			{by: "", why: "its requester is not recorded", known: true},
			{by: "no list", why: "its requester is not recorded", known: true},
			{by: `["ann"]`, asked: 1},
			{by: `["ann"]`, known: true, asked: 1},
			{by: `["bob","staff"]`, asked: 2},
			{by: `["bob","staff"]`, why: `bob has no right to use it: ask for the verb "use"`, known: true, asked: 2},
			{by: `["ann"]`, after: answerTTL - time.Nanosecond, known: true, asked: 2},
			{by: `["ann"]`, after: time.Nanosecond, asked: 3},
		} {
			time.Sleep(step.after) // advances the clock of the test
			why, known := r.Refusal("q", "ns", step.by, time.Now())
			synctest.Wait()
			if known != step.known || (why == "") != (step.why == "") || !strings.Contains(why, step.why) || asked != step.asked {
				t.Errorf("%s after %s: %q, known %t, asked %d times; want %+v", step.by, step.after, why, known, asked, step)
			}
		}
		cancel()
		<-done
	})
}
