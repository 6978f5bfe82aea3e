// Package permissions asks the API server whether a program has the permissions that it needs, and keeps the answer for
// the program's readiness check. Start reading at Review.
package permissions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/klog/v2"
)

// interval is the time between two reviews while no permission is missing.
const interval = 10 * time.Minute

// While a permission is missing or a review fails, the delay before the next review doubles from firstDelay to
// maxDelay. The first delays are short, because the roles of a new installation may be created a moment after the
// program starts.
const (
	firstDelay = 200 * time.Millisecond
	maxDelay   = 5 * time.Second
)

// Review reviews the permissions of one program. All exported fields must be set before Run is called. A Review must
// not be copied.
type Review struct {
	// Program names the program in error messages, such as "the operator".
	Program string
	// Remedy says in error messages what to do about missing permissions.
	Remedy string
	// Client creates the SelfSubjectAccessReviews.
	Client authorizationclient.SelfSubjectAccessReviewInterface
	// Needed lists the permissions that the program needs.
	Needed []authorizationv1.ResourceAttributes

	mu       sync.Mutex
	reviewed bool
	problem  error
}

// Problem returns an error if the permissions have not been reviewed yet, or if some were missing at the last review;
// otherwise nil. It may be called while Run runs.
func (r *Review) Problem() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.reviewed {
		return errors.New("the permissions have not been reviewed yet")
	}
	return r.problem
}

// Run reviews the permissions immediately and then repeatedly, until ctx ends. It logs each change of the result and
// each failed review.
func (r *Review) Run(ctx context.Context) {
	delays := newDelays()
	for {
		delay := interval
		err := r.review(ctx)
		if err != nil || r.Problem() != nil {
			delay = delays.Step()
		} else {
			delays = newDelays()
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot review the permissions; trying again", "delay", delay.String())
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
	}
}

func newDelays() *wait.Backoff {
	return &wait.Backoff{Duration: firstDelay, Factor: 2, Steps: 100, Cap: maxDelay}
}

// review asks the API server for each permission and records the result. If a request fails, it returns the error and
// keeps the last result.
func (r *Review) review(ctx context.Context) error {
	var missing []string
	for i := range r.Needed {
		question := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &r.Needed[i]}}
		answer, err := r.Client.Create(ctx, question, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("asking for the right to %s: %w", Describe(&r.Needed[i]), err)
		}
		if !answer.Status.Allowed {
			missing = append(missing, Describe(&r.Needed[i]))
		}
	}
	r.set(ctx, missing)
	return nil
}

// set records which permissions are missing, and logs them if they have changed.
func (r *Review) set(ctx context.Context, missing []string) {
	var problem error
	if len(missing) > 0 {
		slices.Sort(missing)
		problem = fmt.Errorf("%s may not %s: %s", r.Program, strings.Join(missing, ", "), r.Remedy)
	}
	r.mu.Lock()
	before, first := r.problem, !r.reviewed
	r.problem, r.reviewed = problem, true
	r.mu.Unlock()
	logger := klog.FromContext(ctx)
	switch {
	case problem != nil && (before == nil || before.Error() != problem.Error()):
		logger.Error(problem, "Cannot become ready, because permissions are missing", "program", r.Program)
	case problem == nil && (before != nil || first):
		logger.Info("The program has all permissions that it needs", "program", r.Program, "reviewed", len(r.Needed))
	}
}

// Of returns the permissions that a rule grants in a namespace. An empty namespace means all namespaces. Of leaves out
// the resources, such as "pods/status", for which unused returns true.
func Of(rule rbacv1.PolicyRule, namespace string, unused func(resource string) bool) []authorizationv1.ResourceAttributes {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var needed []authorizationv1.ResourceAttributes
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			if unused(resource) {
				continue
			}
			resource, subresource, _ := strings.Cut(resource, "/")
			for _, name := range names {
				for _, verb := range rule.Verbs {
					needed = append(needed, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: group,
						Resource: resource, Subresource: subresource, Name: name})
				}
			}
		}
	}
	return needed
}

// Describe returns a permission as text, such as "update pods/status" or "get secrets t9k-webhook-cert in t9k-system".
func Describe(a *authorizationv1.ResourceAttributes) string {
	text := a.Verb + " " + a.Resource
	if a.Group != "" {
		text += "." + a.Group
	}
	if a.Subresource != "" {
		text += "/" + a.Subresource
	}
	if a.Name != "" {
		text += " " + a.Name
	}
	if a.Namespace != "" {
		text += " in " + a.Namespace
	}
	return text
}
