// Package rights decides who may use which queue. It asks the API server about users, and caches the answers for a
// while.
package rights

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	corelisters "k8s.io/client-go/listers/core/v1"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/scheduler/latest"
)

const (
	// answerTTL is how long an answer of the API server about a right stays valid.
	answerTTL = 10 * time.Second
	// reviewers is the number of concurrent requests to the API server.
	reviewers = 4
)

// Rights decides who may use which queue: every user in a namespace that the queue selects, and users with the verb
// "use" on the queue. It asks the API server for answers that it does not have. All methods except Run belong to one
// goroutine. The goroutines of Run pass each answer to that goroutine, which then calls Answer.
type Rights struct {
	namespaces corelisters.NamespaceLister
	reviews    authorizationclient.SubjectAccessReviewInterface
	// questions are the open questions for the API server. Each value is the user, followed by the user's groups.
	questions *latest.Queue[Question, []string]
	// answered sends an answer of the API server to the goroutine to which Rights belongs.
	answered func(q Question, allowed bool)
	answers  map[Question]answer
}

// Question asks whether a user may use a queue. By is a value of scheduling.AnnotationRequestedBy.
type Question struct{ By, Queue string }

type answer struct {
	allowed bool
	at      time.Time
}

// New returns a Rights without answers. The goroutines of Run call answered with each answer of the API server.
func New(namespaces corelisters.NamespaceLister, reviews authorizationclient.SubjectAccessReviewInterface, answered func(q Question, allowed bool)) *Rights {
	r := &Rights{namespaces: namespaces, reviews: reviews, answered: answered, answers: map[Question]answer{}}
	r.questions = latest.New(true, r.review)
	return r
}

// Run asks the API server until ctx ends, and waits for its goroutines.
func (r *Rights) Run(ctx context.Context) { r.questions.Run(ctx, reviewers) }

// Selects reports whether a queue with this selector of namespaces admits all users in a namespace. A nil selector
// selects no namespace.
func (r *Rights) Selects(users labels.Selector, namespace string) bool {
	if users == nil {
		return false
	}
	ns, err := r.namespaces.Get(namespace)
	return err == nil && users.Matches(labels.Set(ns.Labels))
}

// Refusal returns why the pods of a requester may not start in a queue that does not select their namespace; empty if
// they may, or if this is not known. known is false until the API server has answered.
func (r *Rights) Refusal(queue, namespace, by string, now time.Time) (why string, known bool) {
	var who []string
	if err := json.Unmarshal([]byte(by), &who); err != nil || len(who) == 0 {
		return fmt.Sprintf("queue %s is not for namespace %s, which its namespaceSelector does not select, and its requester is not recorded: create it "+
			"again, or choose another queue", queue, namespace), true
	}
	allowed, known := r.ask(Question{by, queue}, who, now)
	if allowed || !known {
		return "", known
	}
	return fmt.Sprintf("queue %s is not for namespace %s, which its namespaceSelector does not select, and %s has no right to use it: ask for the "+
		"verb \"use\" on it, or choose another queue", queue, namespace, who[0]), true
}

func (r *Rights) ask(q Question, who []string, now time.Time) (allowed, known bool) {
	if a, ok := r.answers[q]; ok && now.Sub(a.at) < answerTTL {
		return a.allowed, true
	}
	r.questions.Put(q, who)
	return false, false
}

// Answer records an answer, and drops answers that are no longer valid.
func (r *Rights) Answer(q Question, allowed bool, now time.Time) {
	maps.DeleteFunc(r.answers, func(_ Question, a answer) bool { return now.Sub(a.at) >= answerTTL })
	r.answers[q] = answer{allowed, now}
}

// review asks the API server one question.
func (r *Rights) review(ctx context.Context, q Question, who []string) error {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: who[0], Groups: who[1:],
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: scheduling.GroupVersion.Group, Resource: "queues", Name: q.Queue, Verb: "use"}}}
	got, err := r.reviews.Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("asking whether %s may use queue %s: %w", who[0], q.Queue, err)
	}
	r.answered(q, got.Status.Allowed)
	return nil
}
