package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tensorstack.dev/batch/config"
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

// checkUse fails the test unless, after the offset from in the audit log, a user has used each permission of the
// given roles and no request of the user was forbidden. except returns the reason why the log does not show the use
// of a permission, or an empty string if the log must show it.
func (w *world) checkUse(user string, from int64, roles []string, except func(permission) string) {
	w.Helper()
	used := usedPermissions(w.T, w.Env.AuditLog, from, user)
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
}

// noException permits no exception. Pass it to checkUse as except if a user uses every granted permission.
func noException(permission) string { return "" }

// grantedPermissions returns the permissions, one by one, of the ClusterRole and of the Role with this name.
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
	w.Await(user+" uses "+p.String(), func() error {
		if !usedPermissions(w.T, w.Env.AuditLog, 0, user).all[p] {
			return errors.New("it has not used the permission")
		}
		return nil
	})
}

// usage is the set of requests of a user.
type usage struct {
	// all holds each request with and without the name and with and without the namespace of its object.
	all       map[permission]bool
	forbidden []string
}

func auditEnd(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// usedPermissions returns the requests of a user in the audit log, starting at an offset.
func usedPermissions(t *testing.T, path string, from int64, user string) usage {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	u := usage{all: map[permission]bool{}}
	lines := bufio.NewScanner(bytes.NewReader(data[from:]))
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		var e struct {
			Verb, RequestURI string
			User             struct{ Username string }
			ObjectRef        struct{ APIGroup, Resource, Subresource, Name, Namespace string }
			ResponseStatus   struct {
				Code    int
				Message string
			}
			Annotations map[string]string
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if e.User.Username != user || e.ObjectRef.Resource == "" {
			continue
		}
		if e.Annotations["authorization.k8s.io/decision"] == "forbid" {
			u.forbidden = append(u.forbidden, e.Verb+" "+e.RequestURI+": "+e.ResponseStatus.Message)
			continue
		}
		resource := e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			resource += "/" + e.ObjectRef.Subresource
		}
		for _, name := range []string{e.ObjectRef.Name, ""} {
			for _, namespace := range []string{e.ObjectRef.Namespace, ""} {
				u.all[permission{e.Verb, e.ObjectRef.APIGroup, resource, name, namespace}] = true
			}
		}
	}
	return u
}
