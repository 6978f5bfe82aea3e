package kinds_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/kinds/kindtest"
)

// judged converts and validates the job of a manifest with a limit of one replica, under which the job must be invalid.
// It returns the job and the engine's plan for it. begun is true if the job has already started.
func judged(t *testing.T, data []byte, begun bool) (*engine.Job, engine.Plan) {
	t.Helper()
	now := time.Unix(1_700_000_000, 0)
	objects, err := kindtest.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	k, err := kinds.ByName(objects[0].GetObjectKind().GroupVersionKind().Kind)
	if err != nil {
		t.Fatal(err)
	}
	if begun {
		k.Status(objects[0]).StartTime = &metav1.Time{Time: now}
	}
	job := k.Convert(objects[0])
	job.Invalid = k.Validate(objects[0], kinds.Limits{MaxReplicas: 1}).ToAggregate().Error()
	return job, engine.Next(job, engine.Seen{Now: now, Status: k.Status(objects[0]), Live: true}, engine.Config{})
}

// TestJobThatHasStartedContinues verifies that a job that has started keeps its size, rules and bounds when the
// operator's limit is lowered.
func TestJobThatHasStartedContinues(t *testing.T) {
	for _, name := range []string{"good/everything", "good/pytorch-everything", "good/pytorch-elastic", "good/pytorch-elastic-roles", "good/tensorflow-everything"} {
		t.Run(name, func(t *testing.T) {
			want := kindtest.Job(t, manifest(t, name))
			got, plan := judged(t, manifest(t, name), true)
			if plan.Status.Phase == batch.JobFailed || len(plan.Pods) != want.Replicas() || got.Replicas() != want.Replicas() || len(got.Success) != len(want.Success) || len(got.Failure) != len(want.Failure) ||
				(got.Elastic == nil) != (want.Elastic == nil) || got.Elastic != nil && *got.Elastic != *want.Elastic {
				t.Errorf("%d replicas, %d success rules, elastic %+v; want %d, %d, %+v (%s)", got.Replicas(), len(got.Success), got.Elastic,
					want.Replicas(), len(want.Success), want.Elastic, got.Invalid)
			}
		})
	}
}

func TestJobThatHasNotStartedIsRejected(t *testing.T) {
	job, plan := judged(t, manifest(t, "good/everything"), false)
	failed := plan.Status.Conditions[len(plan.Status.Conditions)-2]
	if failed.Type != batch.JobFailedCondition || failed.Reason != batch.ReasonInvalidSpec || !strings.Contains(failed.Message, "the limit is 1") ||
		len(plan.Status.Tasks)+len(plan.Pods)+len(plan.Create) > 0 || job.TTL == nil || job.CleanUp != "Unfinished" {
		t.Errorf("%+v, status %+v, TTL %v, clean-up %s", failed, plan.Status, job.TTL, job.CleanUp)
	}
}

// TestUninterpretableJobIsRejected verifies that a job that cannot be interpreted is rejected even if it has started.
func TestUninterpretableJobIsRejected(t *testing.T) {
	for _, name := range []string{"rule-rank-out-of-range", "role-twice", "replicas-negative", "template-without-containers", "roles-empty"} {
		if job, plan := judged(t, manifest(t, "bad/"+name), true); len(job.Roles) > 0 || plan.Status.Phase != batch.JobFailed {
			t.Errorf("%s continues", name)
		}
	}
}

// TestInvalidTimesAreIgnored verifies that a job that has started continues although its negative TTL is an error, and
// that the TTL does not delete it.
func TestInvalidTimesAreIgnored(t *testing.T) {
	if job, plan := judged(t, manifest(t, "bad/ttl-negative"), true); plan.Status.Phase == batch.JobFailed || job.TTL != nil {
		t.Errorf("%q, TTL %v", plan.Status.Phase, job.TTL)
	}
}

// TestObjectsOfOtherKindsAreNotConverted verifies that nil objects and objects of other kinds are errors and are not
// converted.
func TestObjectsOfOtherKindsAreNotConverted(t *testing.T) {
	for _, o := range []kinds.Object{&batch.PyTorchTrainingJob{}, (*batch.GenericJob)(nil), nil} {
		k := kindtest.Named("GenericJob")
		if job, errs := k.Convert(o), k.Validate(o, kinds.Limits{}); len(job.Roles) > 0 || len(errs) != 1 || len(k.ValidateUpdate(o, o)) != 1 {
			t.Errorf("%T is a %s: %v", o, k.Name, errs)
		}
	}
}
