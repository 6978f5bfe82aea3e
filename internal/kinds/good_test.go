package kinds_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/kinds/kindtest"
	"tensorstack.dev/batch/internal/testing/golden"
)

// TestGoodManifests verifies the objects that are created for valid jobs. Each file of testdata/good is a job;
// NAME.objects.txt holds the objects that are created when the job starts, in order.
func TestGoodManifests(t *testing.T) {
	for _, m := range kindtest.Manifests(t, testdata, "testdata/good") {
		t.Run(m.Name, func(t *testing.T) {
			objects := kindtest.Created(kindtest.Job(t, m.Data), nil)
			golden.Compare(t, "testdata/good/"+m.Name+".objects.txt", kindtest.YAML(t, objects))
		})
	}
}

// TestManifestsOfUsers verifies the pods of jobs that users have written for their own programs. Do not change the
// manifests in testdata/users: the features that they use must continue to work. NAME.pods.txt holds the pods.
func TestManifestsOfUsers(t *testing.T) {
	for _, m := range kindtest.Manifests(t, testdata, "testdata/users") {
		t.Run(m.Name, func(t *testing.T) {
			pods := kindtest.Pods(kindtest.Job(t, m.Data), nil)
			golden.Compare(t, "testdata/users/"+m.Name+".pods.txt", kindtest.YAML(t, pods))
		})
	}
}

// TestResumedPodsEqualGoldenFiles verifies the pods of jobs that have been paused and resumed. NAME.resumed.txt holds
// the pods.
func TestResumedPodsEqualGoldenFiles(t *testing.T) {
	paused := batch.JobStatus{Conditions: []batch.JobCondition{
		{Type: batch.JobPausedCondition, Status: metav1.ConditionTrue, Reason: batch.ReasonPaused},
	}}
	for _, name := range []string{"everything", "pytorch-everything", "pytorch-torchrun", "tensorflow-everything"} {
		t.Run(name, func(t *testing.T) {
			pods := kindtest.Pods(kindtest.Job(t, manifest(t, "good/"+name)), &paused)
			golden.Compare(t, "testdata/good/"+name+".resumed.txt", kindtest.YAML(t, pods))
		})
	}
}

func TestNormalForm(t *testing.T) {
	job := kindtest.Job(t, manifest(t, "good/everything"))
	hour := time.Hour
	three := int32(3)
	if diff := cmp.Diff(&hour, job.TTL); diff != "" {
		t.Error("time to live (-want +got)\n" + diff)
	}
	if diff := cmp.Diff(&engine.Gang{Queue: "research", Priority: 50, MinMember: 7, ByRole: true}, job.Gang); diff != "" {
		t.Error("gang (-want +got)\n" + diff)
	}
	restarts := []engine.Restart{{OnFailure: true, Limit: &three}, {OnFailure: true, OnSuccess: true}, {}}
	for i := range job.Roles {
		if diff := cmp.Diff(restarts[i], job.Roles[i].Restart); diff != "" {
			t.Errorf("restarts of %s (-want +got)\n%s", job.Roles[i].Type, diff)
		}
	}
	var rules []string
	for _, r := range slices.Concat(job.Success, job.Failure) {
		rules = append(rules, r.Text)
	}
	if diff := cmp.Diff([]string{`{"ps":[],"worker":[0,"1","2-3"]}`, `{"evaluator":[0]}`, `{"worker":["0-3"]}`, `{"ps":[0]}`}, rules); diff != "" {
		t.Error("rules (-want +got)\n" + diff)
	}
	if job.CleanUp != batch.CleanUpUnfinished || job.Pause || job.Debug {
		t.Errorf("clean-up %s, paused %v, debugged %v", job.CleanUp, job.Pause, job.Debug)
	}
}

func TestDefaults(t *testing.T) {
	job := kindtest.Job(t, manifest(t, "good/minimal"))
	none := int32(0)
	role := &job.Roles[0]
	if role.Replicas != 1 || role.Main != 0 || role.Expand != nil {
		t.Errorf("%d replicas, main container %d, variables to expand: %v", role.Replicas, role.Main, role.Expand != nil)
	}
	if diff := cmp.Diff(engine.Restart{OnFailure: true, Limit: &none}, role.Restart); diff != "" {
		t.Error("restarts (-want +got)\n" + diff)
	}
	if diff := cmp.Diff(engine.Debug{Command: []string{"sleep", "inf"}}, role.Debug); diff != "" {
		t.Error("debug mode (-want +got)\n" + diff)
	}
	if job.CleanUp != batch.CleanUpNone || job.TTL != nil || job.Service != nil || job.Gang != nil || job.ClusterDomain != "cluster.local" {
		t.Errorf("clean-up %s, TTL %v, service %v, gang %v, domain %s", job.CleanUp, job.TTL, job.Service, job.Gang, job.ClusterDomain)
	}
}

func TestLimitBoundsReplicas(t *testing.T) {
	o, err := kindtest.Decode(manifest(t, "good/everything"))
	if err != nil {
		t.Fatal(err)
	}
	k := kindtest.Named("GenericJob")
	if errs := k.Validate(o[0], kinds.Limits{MaxReplicas: 7}); len(errs) > 0 {
		t.Errorf("seven replicas where seven are allowed: %v", errs)
	}
	want := "spec.replicaSpecs: Invalid value: 7: the job asks for 7 replicas over all roles, and the limit is 6: " +
		"ask for fewer, or have the operator's limit raised"
	if errs := k.Validate(o[0], kinds.Limits{MaxReplicas: 6}); len(errs) != 1 || errs[0].Error() != want {
		t.Errorf("seven replicas where six are allowed: %v", errs)
	}
}

func BenchmarkConvert(b *testing.B) {
	benchmark(b, func(o kinds.Object) { kindtest.Named("GenericJob").Convert(o) })
}

func BenchmarkValidate(b *testing.B) {
	benchmark(b, func(o kinds.Object) { kindtest.Named("GenericJob").Validate(o, kinds.Limits{}) })
}

func benchmark(b *testing.B, f func(kinds.Object)) {
	o, err := kindtest.Decode(manifest(b, "good/everything"))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		f(o[0])
	}
}

func manifest(t testing.TB, name string) []byte {
	t.Helper()
	data, err := testdata.ReadFile("testdata/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return data
}
