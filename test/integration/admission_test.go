package integration

import (
	"context"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/kinds/kindtest"
	"tensorstack.dev/batch/internal/testing/golden"
	"tensorstack.dev/batch/internal/testing/refusal"
)

const kindsDir = "../../internal/kinds"

// TestCRDRefusesWhatCELCanCheck verifies how the CRDs' CEL rules validate jobs in a cluster without webhooks.
func TestCRDRefusesWhatCELCanCheck(t *testing.T) {
	w := newWorld(t)
	client, err := dynamic.NewForConfig(w.Env.Config)
	w.Must(err)
	s := server{client}

	t.Run("bad", func(t *testing.T) {
		for _, m := range kindtest.Manifests(t, os.DirFS(kindsDir), "testdata/bad") {
			t.Run(m.Name, func(t *testing.T) {
				golden.Compare(t, kindsDir+"/testdata/bad/"+m.Name+".server.txt", s.refusal(t, documents(t, m.Data)))
			})
		}
	})
	t.Run("good", func(t *testing.T) {
		for _, m := range kindtest.Manifests(t, os.DirFS(kindsDir), "testdata/good") {
			t.Run(m.Name, func(t *testing.T) {
				job := s.create(t, documents(t, m.Data)[0])
				s.update(t, job) // an update without a change
			})
		}
	})
	t.Run("allowed changes of a live job", s.testChanges)
	t.Run("a change together with a status", s.testChangeWithStatus)
	t.Run("very many rules", s.testManyRules)
	t.Run("manifests of users", s.testManifestsOfUsers)
}

func (s server) testChanges(t *testing.T) {
	for _, c := range []struct{ name, job, patch string }{
		{"to pause", "everything", `{"spec":{"runMode":{"pause":{"enabled":true}}}}`},
		{"to resume", "paused", `{"spec":{"runMode":{"pause":{"enabled":false}}}}`},
		{"to debug", "everything", `{"spec":{"runMode":{"debug":{"enabled":true}}}}`},
		{"to run", "debug", `{"spec":{"runMode":{"debug":{"enable":false}}}}`},
		{"to pause a job without run modes", "minimal", `{"spec":{"runMode":{"pause":{"enabled":true}}}}`},
		{"to debug a job that can be paused only", "paused", `{"spec":{"runMode":{"debug":{"enabled":true,"replicaSpecs":[]}}}}`},
		{"no run modes any more", "paused", `{"spec":{"runMode":null}}`},
		{"the clean-up policy", "everything", `{"spec":{"cleanUpPolicy":"All"}}`},
		{"the time to live", "everything", `{"spec":{"ttlSecondsAfterFinished":9}}`},
		{"no time to live", "everything", `{"spec":{"ttlSecondsAfterFinished":null}}`},
		{"the priority", "everything", `{"spec":{"scheduler":{"t9kScheduler":{"priority":9}}}}`},
		{"empty lists and objects", "minimal", `{"spec":{"successRules":[],"failureRules":[],"scheduler":{},"runMode":{}}}`},
		{"another size", "pytorch-elastic", `{"spec":{"elastic":{"expectedReplicas":4}}}`},
		{"the least size", "pytorch-elastic-roles", `{"spec":{"elastic":{"expectedReplicas":2}}}`},
		{"to pause a training job", "pytorch-torchrun", `{"spec":{"runMode":{"pause":{"enabled":true}}}}`},
		{"to run a training job", "tensorflow-debug", `{"spec":{"runMode":{"debug":{"enabled":false}}}}`},
		{"a default of the run policy written out", "pytorch-torchrun", `{"spec":{"runPolicy":{"restartScope":"Replica"}}}`},
		{"no run policy any more", "tensorflow-everything", `{"spec":{"runPolicy":null}}`},
		{"a run policy", "tensorflow-minimal",
			`{"spec":{"runPolicy":{"activeDeadlineSeconds":9,"backoffLimit":9,"cleanUpPolicy":"All","ttlSecondsAfterFinished":9}}}`},
		{"the priority of a training job", "tensorflow-everything", `{"spec":{"scheduler":{"t9kScheduler":{"priority":9}}}}`},
		{"defaults written out", "pytorch-torchrun-bare",
			`{"spec":{"torchrunConfig":{"rdzvBackend":"c10d","extraOptions":[]},"elastic":{},"runMode":{"pause":{"resumeSpecs":[]}}}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			job := s.create(t, goodJob(t, c.job))
			s.patch(t, job, types.MergePatchType, c.patch)
		})
	}
	for _, c := range []struct{ name, patch string }{
		{"the limit of restarts", `[{"op":"add","path":"/spec/replicaSpecs/0/restartPolicy","value":{"limit":9}}]`},
		{"a default written out", `[{"op":"add","path":"/spec/replicaSpecs/0/restartPolicy","value":{"policy":"OnFailure","scope":"Replica","exitCodes":{"restart":[],"fail":[]}}}]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			job := s.create(t, goodJob(t, "minimal"))
			s.patch(t, job, types.JSONPatchType, c.patch)
		})
	}
}

// testChangeWithStatus verifies that a client cannot bypass the rules for changes of the spec by sending a status with
// the change.
func (s server) testChangeWithStatus(t *testing.T) {
	job := s.create(t, goodJob(t, "minimal"))
	aggregate := map[string]any{}
	for _, phase := range []string{"creating", "pending", "running", "succeeded", "failed", "unknown", "deleted"} {
		aggregate[phase] = int64(1)
	}
	job.Object["status"] = map[string]any{"aggregate": aggregate}
	job, err := s.jobs(t, job).UpdateStatus(t.Context(), job, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, status := range map[string]any{"another": map[string]any{}, "none": nil} {
		changed := job.DeepCopy()
		changed.Object["status"] = status
		if err := unstructured.SetNestedField(changed.Object, map[string]any{}, "spec", "service"); err != nil {
			t.Fatal(err)
		}
		_, err := s.jobs(t, job).Update(t.Context(), changed, metav1.UpdateOptions{})
		if text := refusalText(t, err); !strings.Contains(text, `["service"] cannot change on a live job`) {
			t.Errorf("with %s status: %s", name, text)
		}
	}
}

// testManyRules verifies that jobs with long lists are accepted. The API server limits not only the estimated cost of a
// CRD's rules, but also their actual cost for each object.
func (s server) testManyRules(t *testing.T) {
	job := goodJob(t, "minimal")
	roles := job.Object["spec"].(map[string]any)["replicaSpecs"].([]any)
	roles[0].(map[string]any)["replicas"] = int64(1000)
	role := roles[0].(map[string]any)["type"].(string)
	var each, all []any
	for rank := range int64(1000) {
		each = append(each, map[string]any{role: []any{rank}})
		all = append(all, rank)
	}
	job.Object["spec"] = map[string]any{
		"replicaSpecs": roles[:1],
		"failureRules": each,
		"successRules": []any{map[string]any{role: all}},
	}
	s.create(t, job)
}

// testManifestsOfUsers verifies that the API server accepts the manifests of users unchanged, and that the stored
// jobs have the pods in the golden files.
func (s server) testManifestsOfUsers(t *testing.T) {
	for _, m := range kindtest.Manifests(t, os.DirFS(kindsDir), "testdata/users") {
		t.Run(m.Name, func(t *testing.T) {
			stored, err := s.create(t, documents(t, m.Data)[0]).MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			pods := kindtest.Pods(kindtest.Job(t, stored), nil)
			golden.Compare(t, kindsDir+"/testdata/users/"+m.Name+".pods.txt", kindtest.YAML(t, pods))
		})
	}
}

// server is an API server to which the tests send manifests with strict field validation.
type server struct{ client dynamic.Interface }

// jobs returns a client for jobs of the same kind as like.
func (s server) jobs(t *testing.T, like *unstructured.Unstructured) dynamic.ResourceInterface {
	t.Helper()
	kind, err := kinds.ByName(like.GetKind())
	if err != nil {
		t.Fatal(err)
	}
	return s.client.Resource(batch.GroupVersion.WithResource(kind.Plural)).Namespace("default")
}

// create creates a job, which is deleted when the test ends, and returns the stored job. It ends the test if the API
// server refuses the job.
func (s server) create(t *testing.T, job *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	stored, err := s.tryCreate(t, job)
	if err != nil {
		t.Fatalf("refused: %v", err)
	}
	return stored
}

func (s server) tryCreate(t *testing.T, job *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	job.SetNamespace("default")
	stored, err := s.jobs(t, job).Create(t.Context(), job, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if err == nil {
		t.Cleanup(func() {
			if err := s.jobs(t, job).Delete(context.WithoutCancel(t.Context()), stored.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	return stored, err
}

func (s server) update(t *testing.T, job *unstructured.Unstructured) {
	t.Helper()
	if _, err := s.jobs(t, job).Update(t.Context(), job, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
		t.Errorf("the update is refused: %v", err)
	}
}

func (s server) patch(t *testing.T, job *unstructured.Unstructured, kind types.PatchType, patch string) {
	t.Helper()
	options := metav1.PatchOptions{FieldValidation: metav1.FieldValidationStrict}
	if _, err := s.jobs(t, job).Patch(t.Context(), job.GetName(), kind, []byte(patch), options); err != nil {
		t.Errorf("the patch is refused: %v", err)
	}
}

// refusal returns the text of the API server's answer to an invalid job or, if there are two documents, to a change
// from the first to the second.
func (s server) refusal(t *testing.T, documents []*unstructured.Unstructured) string {
	if len(documents) == 1 {
		_, err := s.tryCreate(t, documents[0])
		return refusalText(t, err)
	}
	stored := s.create(t, documents[0])
	changed := documents[1]
	changed.SetNamespace(stored.GetNamespace())
	changed.SetResourceVersion(stored.GetResourceVersion())
	_, err := s.jobs(t, changed).Update(t.Context(), changed, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
	return refusalText(t, err)
}

// refusalText returns the text of a refusal. If err is nil, the text says that only the controller can find the
// error.
func refusalText(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return "accepted: only the controller can tell\n"
	}
	return refusal.Text(t, err)
}

// goodJob returns the job in testdata/good/NAME.yaml of package kinds.
func goodJob(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(kindsDir + "/testdata/good/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return documents(t, data)[0]
}

// documents returns the documents of a YAML file without validating them.
func documents(t *testing.T, data []byte) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for text := range strings.SplitSeq(string(data), "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		all = append(all, u)
	}
	return all
}
