package operator

import (
	"context"
	"fmt"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"tensorstack.dev/batch/config"
	"tensorstack.dev/batch/internal/configuration"
	"tensorstack.dev/batch/internal/permissions"
)

// permissionReview is the review of the operator's permissions as a runnable of its manager. Every replica runs it.
type permissionReview struct{ *permissions.Review }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (permissionReview) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (r permissionReview) Start(ctx context.Context) error {
	r.Run(ctx)
	return nil
}

// remedy is the advice in messages about missing permissions.
const remedy = "grant its ServiceAccount the roles of config/rbac and config/webhook again, for example by upgrading the installation"

// addPermissions adds the review of permissions to a manager, and the readiness check of the review to ready.
func (o *options) addPermissions(mgr ctrl.Manager, ready *probes) error {
	needed, err := o.neededPermissions()
	if err != nil {
		return fmt.Errorf("reading the operator's roles: %w", err)
	}
	client, err := authorizationclient.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("making a client for the review of permissions: %w", err)
	}
	review := &permissions.Review{Program: "the operator", Remedy: remedy, Client: client.SelfSubjectAccessReviews(), Needed: needed}
	ready.add("permissions", func(*http.Request) error { return review.Problem() })
	if err := mgr.Add(permissionReview{review}); err != nil {
		return fmt.Errorf("adding the review of permissions: %w", err)
	}
	return nil
}

// neededPermissions returns the permissions of the operator's roles that the operator needs with its current settings.
// If its namespace is unknown, the permissions in a namespace are left out.
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
				continue // the operator runs outside of a pod, and no enabled part needs to know its namespace
			}
		}
		role := &rbacv1.ClusterRole{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(r.Object, role); err != nil {
			return nil, fmt.Errorf("reading %s %s: %w", r.GetKind(), r.GetName(), err)
		}
		for _, rule := range role.Rules {
			needed = append(needed, permissions.Of(rule, namespace, func(resource string) bool { return o.leavesUnused(resource, namespace) })...)
		}
	}
	return needed, nil
}

// leavesUnused reports whether the operator, with its current settings, never uses a right to a resource in a
// namespace. An empty namespace means all namespaces.
func (o *options) leavesUnused(resource, namespace string) bool {
	switch resource {
	case "tokenreviews", "subjectaccessreviews":
		return !configuration.Serves(o.settings.Metrics.BindAddress)
	case "validatingwebhookconfigurations":
		return !o.servesWebhook()
	case "secrets", "mutatingwebhookconfigurations": // for the certificate that the operator makes
		return !o.servesWebhook() || o.settings.Webhook.CertDir != ""
	case "leases":
		return !*o.settings.LeaderElection.Enabled
	case "events": // events about the leader, in the operator's own namespace
		return namespace != "" && !*o.settings.LeaderElection.Enabled
	}
	return false
}
