package operator

import (
	"slices"
	"testing"

	"tensorstack.dev/batch/internal/permissions"
)

func TestNeededPermissionsFollowTheSettings(t *testing.T) {
	const leases, reviews, secret, shapes = "get leases.coordination.k8s.io t9k-operator in ours", "create tokenreviews.authentication.k8s.io",
		"update secrets t9k-webhook-cert in ours", "list configmaps resource-shapes in ours"
	always := []string{"create pods", "patch pods/status", "update genericjobs.batch.tensorstack.dev/status", "list queues.scheduler.tensorstack.dev"}
	for name, test := range map[string]struct {
		o        options
		yes, not []string
	}{
		"everything":   {options{namespace: "ours", leaderElection: true, metricsAddress: ":1", webhookAddress: ":2"}, []string{leases, reviews, secret, shapes}, nil},
		"cert-manager": {options{namespace: "ours", webhookAddress: ":2", webhookCertDir: "certs"}, []string{shapes}, []string{leases, reviews, secret}},
		"nothing":      {options{namespace: "ours", metricsAddress: "0", webhookAddress: "0"}, []string{shapes}, []string{leases, reviews, secret}},
		"no namespace": {options{}, nil, []string{leases, reviews, secret, shapes}},
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
