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

// Each file of testdata/bad holds a mistake: a Queue or a PodGroup, or one and then a change of it that it does not take.
// NAME.txt holds what the API server says to it, and then nothing is different from before.
func TestBadManifests(t *testing.T) {
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
				t.Errorf("it is there: %v, %v", left, err)
			case stored != nil && (err != nil || left.GetGeneration() != stored.GetGeneration()):
				t.Errorf("it has changed: %v, %v", left, err)
			}
			if stored != nil {
				if err := of.Delete(t.Context(), stored.GetName(), metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// manifestsIn reads the documents of a YAML file as they are, mistakes included.
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
