package scheduler

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/testing/golden"
	"tensorstack.dev/batch/internal/testing/refusal"
)

// TestBadManifestsGetTheirErrorMessages verifies that the API server refuses each file of testdata/bad with the answer
// in NAME.txt, and that a refused request changes nothing. A file contains an invalid Queue or PodGroup, or a valid one
// followed by an invalid change of it.
func TestBadManifestsGetTheirErrorMessages(t *testing.T) {
	s := sharedStage(t)
	objects, err := dynamic.NewForConfig(s.Env.Config)
	s.Must(err)
	files, err := filepath.Glob("testdata/bad/*.yaml")
	s.Must(err)
	if len(files) < 40 {
		t.Errorf("only %d bad manifests are left", len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			all := manifestsIn(t, file)
			var of dynamic.ResourceInterface = objects.Resource(scheduling.GroupVersion.WithResource("queues"))
			if all[0].GetKind() == "PodGroup" {
				of = objects.Resource(scheduling.GroupVersion.WithResource("podgroups")).Namespace(s.Namespace)
			}
			var stored *unstructured.Unstructured
			if len(all) == 2 {
				if stored, err = of.Create(t.Context(), all[0], metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
					t.Fatal(err)
				}
				all[1].SetResourceVersion(stored.GetResourceVersion())
				_, err = of.Update(t.Context(), all[1], metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
			} else {
				_, err = of.Create(t.Context(), all[0], metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
			}
			golden.Compare(t, strings.TrimSuffix(file, ".yaml")+".txt", refusal.Text(t, err))

			left, err := of.Get(t.Context(), all[0].GetName(), metav1.GetOptions{})
			switch {
			case stored == nil && !apierrors.IsNotFound(err):
				t.Errorf("the refused object exists: %v, %v", left, err)
			case stored != nil && (err != nil || left.GetGeneration() != stored.GetGeneration()):
				t.Errorf("the refused change was made: %v, %v", left, err)
			}
			if stored != nil {
				if err := of.Delete(t.Context(), stored.GetName(), metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// manifestsIn returns the documents of a YAML file without validating them.
func manifestsIn(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
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
