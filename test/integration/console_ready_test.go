package integration

import (
	"errors"
	"slices"
	"strings"
	"testing"

	authorization "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestConsoleIsReadyWithItsPermissions verifies that a console that lacks a permission names the permission, and
// becomes ready once the permission is granted.
func TestConsoleIsReadyWithItsPermissions(t *testing.T) {
	w := newWorld(t)
	args, _, probes := w.prepareConsole()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "t9k-console"}}
	var whole []rbacv1.PolicyRule
	w.Update(role, func() {
		whole = slices.Clone(role.Rules)
		role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "tokenreviews") })
	})
	restore := func() { w.Update(role, func() { role.Rules = whole }) }
	w.Cleanup(restore)
	reviews := authorization.ResourceAttributes{Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews"}
	w.awaitRightOf(consoleUser, false, reviews)
	w.runConsole(args)
	w.Await("the console says what it lacks", func() error {
		const want = "the console may not create tokenreviews.authentication.k8s.io: grant its ServiceAccount the roles of config/console again"
		err := consoleReady(probes)
		if err == nil {
			return errors.New("it is ready")
		}
		if strings.Contains(err.Error(), want) {
			return nil
		}
		return err
	})
	restore()
	w.Await("the console is ready", func() error { return consoleReady(probes) })
}
