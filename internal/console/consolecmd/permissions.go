package consolecmd

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"tensorstack.dev/batch/config"
	"tensorstack.dev/batch/internal/permissions"
)

// mend tells administrators how to restore missing permissions.
const mend = "grant its ServiceAccount the roles of config/console again, for example by upgrading the installation"

// reviewPermissions returns the review of the permissions that the console needs. They do not include the permission to
// read logs: without it, the console works, but its archive has no logs.
func (o *options) reviewPermissions(client *rest.Config) (*permissions.Review, error) {
	reviews, err := authorizationclient.NewForConfig(client)
	if err != nil {
		return nil, fmt.Errorf("making a client for the review of permissions: %w", err)
	}
	object, err := config.ConsoleClusterRole()
	if err != nil {
		return nil, fmt.Errorf("reading the console's role: %w", err)
	}
	role := &rbacv1.ClusterRole{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, role); err != nil {
		return nil, fmt.Errorf("reading the console's role: %w", err)
	}
	review := &permissions.Review{Program: "the console", Remedy: mend, Client: reviews.SelfSubjectAccessReviews()}
	for _, rule := range role.Rules {
		review.Needed = append(review.Needed, permissions.Of(rule, "", func(resource string) bool {
			// The archive records the UID of the namespace kube-system, so the console reads namespaces only with an
			// archive.
			return resource == "namespaces" && o.settings.Archive.Address == ""
		})...)
	}
	return review, nil
}
