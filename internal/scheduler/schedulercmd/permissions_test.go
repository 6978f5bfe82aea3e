package schedulercmd

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	componentconfig "k8s.io/component-base/config"

	"tensorstack.dev/batch/internal/permissions"
)

func TestNeededPermissionsFollowLeaderElection(t *testing.T) {
	always := []string{"watch podgroups.scheduler.tensorstack.dev", "patch podgroups.scheduler.tensorstack.dev/status", "create pods/binding", "create subjectaccessreviews.authorization.k8s.io"}
	leases := []string{"create leases.coordination.k8s.io in ours", "update leases.coordination.k8s.io mine in ours"}
	for _, elects := range []bool{true, false} {
		needed, err := neededPermissions(componentconfig.LeaderElectionConfiguration{LeaderElect: elects, ResourceName: "mine", ResourceNamespace: "ours"})
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for i := range needed {
			all = append(all, permissions.Describe(&needed[i]))
		}
		for _, p := range always {
			if !slices.Contains(all, p) {
				t.Errorf("%q is not needed, but\n%q", p, all)
			}
		}
		for _, p := range leases {
			if slices.Contains(all, p) != elects {
				t.Errorf("with leader election %t, %q is needed: %t", elects, p, !elects)
			}
		}
	}
}

// TestReadinessGate verifies that a problem fails /readyz and nothing else.
func TestReadinessGate(t *testing.T) {
	var problem error
	gate := &readinessGate{authorizerfactory.NewAlwaysAllowAuthorizer(), func() error { return problem }}
	for _, test := range []struct {
		attributes authorizer.AttributesRecord
		problem    error
		want       authorizer.Decision
	}{
		{authorizer.AttributesRecord{Path: "/readyz"}, nil, authorizer.DecisionAllow},
		{authorizer.AttributesRecord{Path: "/readyz"}, errors.New("may not list queues"), authorizer.DecisionNoOpinion},
		{authorizer.AttributesRecord{Path: "/livez"}, errors.New("may not list queues"), authorizer.DecisionAllow},
		{authorizer.AttributesRecord{Path: "/metrics"}, errors.New("may not list queues"), authorizer.DecisionAllow},
	} {
		problem = test.problem
		got, _, err := gate.Authorize(context.Background(), test.attributes)
		if got != test.want || (err != nil) != (test.want != authorizer.DecisionAllow) || err != nil && !strings.Contains(err.Error(), "may not list queues") {
			t.Errorf("%s with problem %v: decision %v, error %v", test.attributes.Path, test.problem, got, err)
		}
	}
}
