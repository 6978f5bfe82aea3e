package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"tensorstack.dev/batch/config"
)

// permissionInterval is the interval between two reviews of the operator's permissions, if none is missing.
const permissionInterval = 10 * time.Minute

// permissions asks the API server whether the operator may do what its roles in config allow, and keeps the answer for
// the readiness check.
type permissions struct {
	client client.Client
	needed []authorizationv1.ResourceAttributes

	mu sync.Mutex
	// problem is why the operator is not ready: not reviewed yet, or permissions are missing.
	problem error
}

// addPermissions adds the review of permissions to a manager, and its readiness check. Every replica does it.
func (o *options) addPermissions(mgr ctrl.Manager, ready *probes) error {
	needed, err := o.neededPermissions()
	if err != nil {
		return fmt.Errorf("reading the operator's roles: %w", err)
	}
	p := &permissions{client: mgr.GetClient(), needed: needed, problem: errors.New("the permissions have not been reviewed yet")}
	ready.add("permissions", p.ready)
	if err := mgr.Add(p); err != nil {
		return fmt.Errorf("adding the review of permissions: %w", err)
	}
	return nil
}

// neededPermissions lists what the operator's roles allow, as far as its settings need it.
func (o *options) neededPermissions() ([]authorizationv1.ResourceAttributes, error) {
	roles, err := config.OperatorRoles()
	if err != nil {
		return nil, err
	}
	var needed []authorizationv1.ResourceAttributes
	for _, r := range roles {
		namespace := ""
		if r.GetKind() == "Role" {
			if namespace = o.namespace; namespace == "" {
				continue // outside of a pod, with parts that need no namespace
			}
		}
		if r.GetName() == "t9k-operator-webhook" && (!o.servesWebhook() || o.webhookCertDir != "") {
			continue
		}
		role := &rbacv1.ClusterRole{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(r.Object, role); err != nil {
			return nil, fmt.Errorf("reading %s %s: %w", r.GetKind(), r.GetName(), err)
		}
		for _, rule := range role.Rules {
			needed = append(needed, o.permissionsOf(rule, namespace)...)
		}
	}
	return needed, nil
}

// permissionsOf lists what a rule allows in a namespace, or in all, as far as the operator's settings need it.
func (o *options) permissionsOf(rule rbacv1.PolicyRule, namespace string) []authorizationv1.ResourceAttributes {
	unused := func(resource string) bool {
		switch resource {
		case "tokenreviews", "subjectaccessreviews":
			return o.metricsAddress == "" || o.metricsAddress == "0"
		case "leases":
			return !o.leaderElection
		case "events": // of its own namespace, about the leader
			return namespace != "" && !o.leaderElection
		}
		return false
	}
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

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (p *permissions) NeedLeaderElection() bool { return false }

// ready is the readiness check.
func (p *permissions) ready(*http.Request) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.problem
}

// Start reviews the permissions until ctx ends: soon again while one is missing, and rarely afterwards.
func (p *permissions) Start(ctx context.Context) error {
	for {
		wait := permissionInterval
		if err := p.review(ctx); err != nil {
			wait = recheck
			if ctx.Err() == nil {
				log.FromContext(ctx).Error(err, "Reviewing the operator's permissions; trying again", "delay", wait.String())
			}
		} else if p.ready(nil) != nil {
			wait = recheck
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// review asks for each permission, and logs what is missing if that has changed. It keeps the last result if the API
// server does not answer.
func (p *permissions) review(ctx context.Context) error {
	var missing []string
	for i := range p.needed {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &p.needed[i]}}
		if err := p.client.Create(ctx, review); err != nil {
			return fmt.Errorf("asking for the right to %s: %w", describe(&p.needed[i]), err)
		}
		if !review.Status.Allowed {
			missing = append(missing, describe(&p.needed[i]))
		}
	}
	p.set(ctx, missing)
	return nil
}

// mend says what to do about missing permissions.
const mend = "grant its ServiceAccount the roles of config/rbac and config/webhook again, for example by upgrading the installation"

// set records which permissions are missing.
func (p *permissions) set(ctx context.Context, missing []string) {
	var problem error
	if len(missing) > 0 {
		slices.Sort(missing)
		problem = fmt.Errorf("the operator may not %s: %s", strings.Join(missing, ", "), mend)
	}
	p.mu.Lock()
	before := p.problem
	p.problem = problem
	p.mu.Unlock()
	switch {
	case problem != nil && (before == nil || before.Error() != problem.Error()):
		log.FromContext(ctx).Info("The operator lacks permissions and is not ready", "missing", missing, "mend", mend)
	case problem == nil && before != nil:
		log.FromContext(ctx).Info("The operator has all permissions that it needs", "reviewed", len(p.needed))
	}
}

// describe says what a permission allows, such as "update pods/status" or "get secrets t9k-webhook-cert in t9k-system".
func describe(a *authorizationv1.ResourceAttributes) string {
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
