package schedulercmd

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordination "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	componentconfig "k8s.io/component-base/config"
	schedulerconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"

	"tensorstack.dev/batch/config"
	"tensorstack.dev/batch/internal/permissions"
)

// readyzPath is the path of the readiness probe.
const readyzPath = "/readyz"

// remedy is the instruction for missing permissions.
const remedy = "bind the roles t9k-scheduler, system:kube-scheduler and system:volume-scheduler to its user, as config/scheduler does, for example by upgrading the installation"

// kubeSchedulerRules lists the rights from Kubernetes' own roles system:kube-scheduler and system:volume-scheduler
// without which no group is planned or bound. The other rights in these roles depend on the version of Kubernetes.
var kubeSchedulerRules = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"pods", "nodes", "namespaces", "persistentvolumes", "persistentvolumeclaims"}, Verbs: []string{"list", "watch"}},
	{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"delete"}}, // evictions by queue
	{APIGroups: []string{""}, Resources: []string{"pods/binding"}, Verbs: []string{"create"}},
	{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"patch"}},
	{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"storageclasses", "csinodes", "csidrivers", "csistoragecapacities"}, Verbs: []string{"list", "watch"}},
	{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	// The scheduler asks who may use a queue.
	{APIGroups: []string{authorizationv1.GroupName}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
}

// neededPermissions lists the permissions that the scheduler needs with its settings of leader election.
func neededPermissions(election componentconfig.LeaderElectionConfiguration) ([]authorizationv1.ResourceAttributes, error) {
	manifest, err := config.SchedulerClusterRole()
	if err != nil {
		return nil, fmt.Errorf("reading the scheduler's role: %w", err)
	}
	role := &rbacv1.ClusterRole{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(manifest.Object, role); err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", manifest.GetKind(), manifest.GetName(), err)
	}
	all := func(string) bool { return false }
	var needed []authorizationv1.ResourceAttributes
	for _, rules := range [][]rbacv1.PolicyRule{role.Rules, kubeSchedulerRules} {
		for _, rule := range rules {
			needed = append(needed, permissions.Of(rule, "", all)...)
		}
	}
	if !election.LeaderElect {
		return needed, nil
	}
	lease := rbacv1.PolicyRule{APIGroups: []string{coordination.GroupName}, Resources: []string{"leases"}, Verbs: []string{"create"}}
	needed = append(needed, permissions.Of(lease, election.ResourceNamespace, all)...)
	lease.ResourceNames, lease.Verbs = []string{election.ResourceName}, []string{"get", "update"}
	return append(needed, permissions.Of(lease, election.ResourceNamespace, all)...), nil
}

// reviewPermissions returns the review of the scheduler's permissions, and makes /readyz answer with status 500 until
// all permissions have been reviewed and while one is missing.
func reviewPermissions(cc *schedulerconfig.CompletedConfig) (*permissions.Review, error) {
	needed, err := neededPermissions(cc.ComponentConfig.LeaderElection)
	if err != nil {
		return nil, err
	}
	review := &permissions.Review{Program: "the scheduler", Remedy: remedy, Client: cc.Client.AuthorizationV1().SelfSubjectAccessReviews(), Needed: needed}
	if cc.Authorization.Authorizer != nil { // nil if the scheduler has no HTTPS server
		cc.Authorization.Authorizer = &readinessGate{cc.Authorization.Authorizer, review.Problem}
	}
	return review, nil
}

// readinessGate fails requests for /readyz while the scheduler has a problem. kube-scheduler builds its handler itself
// and accepts no further checks. The authorizer is the only replaceable part of the handler. If it returns an error,
// the handler answers with status 500 and the text of the error.
type readinessGate struct {
	authorizer.Authorizer
	problem func() error
}

// Authorize implements authorizer.Authorizer.
func (g *readinessGate) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if !a.IsResourceRequest() && a.GetPath() == readyzPath {
		if err := g.problem(); err != nil {
			return authorizer.DecisionNoOpinion, "", fmt.Errorf("the scheduler is not ready: %w", err)
		}
	}
	return g.Authorizer.Authorize(ctx, a)
}
