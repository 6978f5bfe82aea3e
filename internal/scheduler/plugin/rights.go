package plugin

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

	jobs "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// answerTTL is how long an answer of the API server about a right stays valid.
const answerTTL = 10 * time.Second

// rights decides who may use which queue: all authors in the namespaces that the queue selects, and users with the
// verb "use" on the queue. The planner asks about groups that have not started. Rights asks the API server for
// answers that it does not have. It belongs to the planner; only review runs on other goroutines.
type rights struct {
	namespaces corelisters.NamespaceLister
	reviews    authorizationclient.SubjectAccessReviewInterface
	// reviewQueue sends questions to the API server. The values are the user and their groups.
	reviewQueue *latestQueue[question, []string]
	// answered sends an answer of the API server to the planner.
	answered func(q question, allowed bool)
	answers  map[question]answer
}

// question asks whether a user may use a queue. by is a value of scheduling.AnnotationRequestedBy.
type question struct{ by, queue string }

type answer struct {
	allowed bool
	at      time.Time
}

func newRights(namespaces corelisters.NamespaceLister, reviews authorizationclient.SubjectAccessReviewInterface, answered func(q question, allowed bool)) *rights {
	r := &rights{namespaces: namespaces, reviews: reviews, answered: answered, answers: map[question]answer{}}
	r.reviewQueue = newLatestQueue(true, r.review)
	return r
}

// selects reports whether a queue admits everybody in a namespace.
func (r *rights) selects(q *queue, namespace string) bool {
	if q.users == nil {
		return false
	}
	ns, err := r.namespaces.Get(namespace)
	return err == nil && q.users.Matches(labels.Set(ns.Labels))
}

// fault returns why a request may not start in a queue that does not select its namespace; empty if it may. Known is
// false until the API server has answered.
func (r *rights) fault(q *queue, namespace, by string, now time.Time) (why string, known bool) {
	var who []string
	if err := json.Unmarshal([]byte(by), &who); err != nil || len(who) == 0 {
		return fmt.Sprintf("queue %s is not for namespace %s, which its namespaceSelector does not select, and its requester is not recorded: create it "+
			"again, or choose another queue", q.core.Name, namespace), true
	}
	allowed, known := r.ask(question{by, q.core.Name}, who, now)
	if allowed || !known {
		return "", known
	}
	return fmt.Sprintf("queue %s is not for namespace %s, which its namespaceSelector does not select, and %s has no right to use it: ask for the "+
		"verb \"use\" on it, or choose another queue", q.core.Name, namespace, who[0]), true
}

func (r *rights) ask(q question, who []string, now time.Time) (allowed, known bool) {
	if a, ok := r.answers[q]; ok && now.Sub(a.at) < answerTTL {
		return a.allowed, true
	}
	r.reviewQueue.put(q, who)
	return false, false
}

// answer records an answer, and drops those that are no longer valid.
func (r *rights) answer(q question, allowed bool, now time.Time) {
	maps.DeleteFunc(r.answers, func(_ question, a answer) bool { return now.Sub(a.at) >= answerTTL })
	r.answers[q] = answer{allowed, now}
}

// review asks the API server one question.
func (r *rights) review(ctx context.Context, q question, who []string) error {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: who[0], Groups: who[1:],
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: scheduling.GroupVersion.Group, Resource: "queues", Name: q.queue, Verb: "use"}}}
	got, err := r.reviews.Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("asking whether %s may use queue %s: %w", who[0], q.queue, err)
	}
	r.answered(q, got.Status.Allowed)
	return nil
}

// admit sets on a group, or on each of its waiting pods, whether the author may use the queue. It returns false while
// that is unknown.
func (x *index) admit(g *group, r *rights, now time.Time) (known bool) {
	q := x.queues[g.queue()]
	free := r == nil || q == nil || r.selects(q, g.key.Namespace)
	if free && !g.asked {
		return true
	}
	g.asked, known = !free, true
	fault := func(o metav1.Object) string {
		if free {
			return ""
		}
		why, ok := r.fault(q, g.key.Namespace, o.GetAnnotations()[scheduling.AnnotationRequestedBy], now)
		known = known && ok
		return why
	}
	g.core.Barred = ""
	for _, p := range g.core.Pods {
		pod := x.podOf(p)
		switch {
		case p.Node != "":
		case g.single:
			g.core.Barred = fault(pod)
		case pod.Labels[jobs.LabelJobName] == "":
			p.Barred = fault(pod)
		case g.spec != nil && g.core.Barred == "":
			g.core.Barred = g.jobFault(q, free, fault)
		}
	}
	g.asking = !known
	return known
}

// jobFault returns why the job of a group may not use its queue; empty if it may. It does not check the author of the
// pods, which is the operator.
func (g *group) jobFault(q *queue, free bool, fault func(metav1.Object) string) string {
	switch {
	case g.spec.Annotations[scheduling.AnnotationRequestedBy] != "":
		return fault(g.spec)
	case !free && g.core.Created.Before(q.created): // admission checked the author of a younger job
		return fmt.Sprintf("queue %s is not for namespace %s, which its namespaceSelector does not select, and is newer than the job, "+
			"so the right of the job's author to it was not checked: create the job again, or choose another queue", q.core.Name, g.key.Namespace)
	}
	return ""
}

// answered marks the groups whose rights were unknown to be tried.
func (x *index) answered() {
	for g := range x.waiting {
		if g.asking {
			g.asking, g.changed = false, true
		}
	}
	x.wake()
}
