package kinds_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/kinds/kindtest"
)

// converted converts the job of a manifest, begun or not, where the operator allows one replica.
func converted(t *testing.T, data []byte, begun bool) *engine.Job {
	t.Helper()
	objects, err := kindtest.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	k, err := kinds.ByName(objects[0].GetObjectKind().GroupVersionKind().Kind)
	if err != nil {
		t.Fatal(err)
	}
	if begun {
		k.Status(objects[0]).StartTime = &metav1.Time{}
	}
	return k.Convert(objects[0], kinds.Options{MaxReplicas: 1})
}

// A job that has begun keeps its size, its rules and its bounds where the operator's limit is lowered.
func TestJobThatHasBegunIsCarriedOn(t *testing.T) {
	for _, name := range []string{"good/everything", "good/pytorch-everything", "good/pytorch-elastic", "good/pytorch-elastic-roles", "good/tensorflow-everything"} {
		t.Run(name, func(t *testing.T) {
			want, got := accepted(t, manifest(t, name)), converted(t, manifest(t, name), true)
			if got.Invalid != "" || got.Replicas() != want.Replicas() || len(got.Success) != len(want.Success) || len(got.Failure) != len(want.Failure) ||
				(got.Elastic == nil) != (want.Elastic == nil) || got.Elastic != nil && *got.Elastic != *want.Elastic {
				t.Errorf("%d replicas, %d success rules, elastic %+v; want %d, %d, %+v (%s)", got.Replicas(), len(got.Success), got.Elastic,
					want.Replicas(), len(want.Success), want.Elastic, got.Invalid)
			}
		})
	}
}

func TestJobThatHasNotBegunIsInvalid(t *testing.T) {
	job := converted(t, manifest(t, "good/everything"), false)
	if !strings.Contains(job.Invalid, "the limit is 1") || len(job.Roles) > 0 || job.TTL == nil || job.CleanUp != "Unfinished" {
		t.Errorf("%q, %d roles, TTL %v, clean-up %s", job.Invalid, len(job.Roles), job.TTL, job.CleanUp)
	}
}

// What makes no sense cannot be carried on, whether or not it has begun.
func TestSenselessJobIsInvalid(t *testing.T) {
	for _, name := range []string{"rule-rank-out-of-range", "role-twice", "replicas-negative", "template-without-containers", "roles-empty"} {
		if job := converted(t, manifest(t, "bad/"+name), true); job.Invalid == "" {
			t.Errorf("%s is carried on", name)
		}
	}
}

// A negative time to live is a fault, and must not delete the job at once.
func TestFaultyTimesDoNotHold(t *testing.T) {
	if job := converted(t, manifest(t, "bad/ttl-negative"), true); job.Invalid != "" || job.TTL != nil {
		t.Errorf("%q, TTL %v", job.Invalid, job.TTL)
	}
}
