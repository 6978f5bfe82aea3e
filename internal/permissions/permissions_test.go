package permissions

import (
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
)

func TestDescribe(t *testing.T) {
	for want, a := range map[string]authorizationv1.ResourceAttributes{
		"create pods":                {Verb: "create", Resource: "pods"},
		"patch pods/status":          {Verb: "patch", Resource: "pods", Subresource: "status"},
		"update leases.g mine in ns": {Verb: "update", Group: "g", Resource: "leases", Name: "mine", Namespace: "ns"},
	} {
		if got := Describe(&a); got != want {
			t.Errorf("%+v is %q, not %q", a, got, want)
		}
	}
}

func TestProgramIsNotReadyBeforeTheFirstReview(t *testing.T) {
	r := &Review{Program: "the scheduler", Remedy: "grant it"}
	if r.Problem() == nil {
		t.Error("it is ready")
	}
	r.set(t.Context(), nil)
	if err := r.Problem(); err != nil {
		t.Errorf("without missing permissions: %v", err)
	}
	r.set(t.Context(), []string{"list queues", "create pods"})
	if err := r.Problem(); err == nil || err.Error() != "the scheduler may not create pods, list queues: grant it" {
		t.Errorf("with missing permissions: %v", err)
	}
}

func TestDelaysEndAtTheLongest(t *testing.T) {
	delays := newDelays()
	if first := delays.Step(); first != firstDelay {
		t.Errorf("the first delay is %s", first)
	}
	for range 200 {
		if d := delays.Step(); d > maxDelay {
			t.Fatalf("a delay of %s", d)
		}
	}
	if d := delays.Step(); d != maxDelay {
		t.Errorf("the last delay is %s", d)
	}
}
