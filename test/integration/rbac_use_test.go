package integration

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tensorstack.dev/batch/config"
	"tensorstack.dev/batch/internal/testing/audit"
)

// permission is one action that a role allows. If name is empty, it applies to all objects; if namespace is empty, it
// applies to all namespaces.
type permission struct{ verb, group, resource, name, namespace string }

func (p permission) String() string {
	text := strings.TrimSpace(fmt.Sprintf("%s %s.%s %s", p.verb, p.resource, p.group, p.name))
	if p.namespace != "" {
		text += " in " + p.namespace
	}
	return text
}

// checkUse fails the test unless, in the rest of the audit log, a user has used each permission of the given roles and
// no request of the user was forbidden. except returns the reason why the log does not show the use of a permission, or
// an empty string if the log must show it. checkUse returns the requests of the user.
func (w *world) checkUse(user string, log *audit.Log, roles []string, except func(permission) string) usage {
	w.Helper()
	used := w.used(user, log)
	for _, p := range used.forbidden {
		w.Errorf("forbidden: %s", p)
	}
	for _, role := range roles {
		granted := w.grantedPermissions(role)
		if len(granted) == 0 {
			w.Errorf("role %s grants nothing", role)
		}
		for _, p := range granted {
			reason := except(p)
			switch {
			case !used.all[p] && reason == "":
				w.Errorf("role %s grants what is not used: %s", role, p)
			case used.all[p] && reason != "":
				w.Errorf("role %s: the log shows the use of %s, so this is no reason: %s", role, p, reason)
			}
		}
	}
	if w.Failed() {
		w.Logf("used: %v", slices.SortedFunc(maps.Keys(used.all), func(a, b permission) int { return strings.Compare(a.String(), b.String()) }))
	}
	return used
}

// noException permits no exception. Pass it to checkUse as except if a user uses every granted permission.
func noException(permission) string { return "" }

// grantedPermissions returns the permissions, one by one, of the ClusterRole with this name and of the Role with this
// name in the operator's namespace.
func (w *world) grantedPermissions(role string) []permission {
	w.Helper()
	everywhere, here := &rbacv1.ClusterRole{}, &rbacv1.Role{}
	w.Must(client.IgnoreNotFound(w.Client.Get(w.Context(), types.NamespacedName{Name: role}, everywhere)))
	w.Must(client.IgnoreNotFound(w.Client.Get(w.Context(), types.NamespacedName{Name: role, Namespace: config.Namespace}, here)))
	return append(permissionsOf(everywhere.Rules, ""), permissionsOf(here.Rules, config.Namespace)...)
}

func permissionsOf(rules []rbacv1.PolicyRule, namespace string) []permission {
	var all []permission
	for _, r := range rules {
		names := r.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					for _, name := range names {
						all = append(all, permission{verb, group, resource, name, namespace})
					}
				}
			}
		}
	}
	return all
}

// awaitUse waits until the audit log shows that a user has used a permission.
func (w *world) awaitUse(user string, p permission) {
	w.Helper()
	log := audit.Open(w.Env.AuditLog)
	w.Await(user+" uses "+p.String(), func() error {
		if !w.used(user, log).all[p] {
			return errors.New("it has not used the permission")
		}
		return nil
	})
}

// usage is the set of requests of a user.
type usage struct {
	// all holds each request that was not forbidden, with and without the name and with and without the namespace of
	// its object.
	all       map[permission]bool
	forbidden []string
}

// auditEnd returns the audit log, positioned at its end: the log yields only requests after the call.
func (w *world) auditEnd() *audit.Log {
	w.Helper()
	log, err := audit.OpenAtEnd(w.Env.AuditLog)
	w.Must(err)
	return log
}

// used returns the requests of a user for resources that were logged since the last call with this log.
func (w *world) used(user string, log *audit.Log) usage {
	w.Helper()
	events, err := log.Next()
	w.Must(err)
	u := usage{all: map[permission]bool{}}
	for _, e := range events {
		if e.User != user || e.Resource == "" {
			continue
		}
		if e.Forbidden {
			u.forbidden = append(u.forbidden, e.Verb+" "+e.URI+": "+e.Message)
			continue
		}
		for _, name := range []string{e.Name, ""} {
			for _, namespace := range []string{e.Namespace, ""} {
				u.all[permission{e.Verb, e.Group, e.Resource, name, namespace}] = true
			}
		}
	}
	return u
}
