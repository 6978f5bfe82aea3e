package operator

import (
	"slices"
	"testing"

	configv1alpha1 "tensorstack.dev/batch/api/config/v1alpha1"
	"tensorstack.dev/batch/internal/permissions"
)

func TestNeededPermissionsFollowTheSettings(t *testing.T) {
	const leases, reviews, secret, shapes = "get leases.coordination.k8s.io t9k-operator in ours", "create tokenreviews.authentication.k8s.io",
		"update secrets t9k-webhook-cert in ours", "list configmaps resource-shapes in ours"
	const podHook, bundles = "patch validatingwebhookconfigurations.admissionregistration.k8s.io t9k-batch",
		"patch mutatingwebhookconfigurations.admissionregistration.k8s.io t9k-batch"
	always := []string{"create pods", "patch pods/status", "update genericjobs.batch.tensorstack.dev/status", "list queues.scheduler.tensorstack.dev"}
	for name, test := range map[string]struct {
		o        options
		yes, not []string
	}{
		"everything":   {optionsOf("ours", true, ":1", ":2", ""), []string{leases, reviews, secret, shapes, podHook, bundles}, nil},
		"cert-manager": {optionsOf("ours", false, "0", ":2", "certs"), []string{shapes, podHook}, []string{leases, reviews, secret, bundles}},
		"nothing":      {optionsOf("ours", false, "0", "0", ""), []string{shapes}, []string{leases, reviews, secret, podHook, bundles}},
		"no namespace": {optionsOf("", false, "0", "0", ""), nil, []string{leases, reviews, secret, shapes, podHook, bundles}},
	} {
		t.Run(name, func(t *testing.T) {
			needed, err := test.o.neededPermissions()
			if err != nil {
				t.Fatal(err)
			}
			var all []string
			for i := range needed {
				all = append(all, permissions.Describe(&needed[i]))
			}
			for _, p := range append(slices.Clone(always), test.yes...) {
				if !slices.Contains(all, p) {
					t.Errorf("%q is not needed, but\n%q", p, all)
				}
			}
			for _, p := range test.not {
				if slices.Contains(all, p) {
					t.Errorf("%q is needed", p)
				}
			}
		})
	}
}

func optionsOf(namespace string, election bool, metrics, webhook, certDir string) options {
	return options{namespace: namespace, settings: configv1alpha1.OperatorConfiguration{
		LeaderElection: configv1alpha1.LeaderElection{Enabled: &election}, Metrics: configv1alpha1.Metrics{BindAddress: metrics},
		Webhook: configv1alpha1.Webhook{BindAddress: webhook, CertDir: certDir}}}
}
