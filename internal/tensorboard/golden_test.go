package tensorboard_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/tensorboard/board"
	"tensorstack.dev/batch/internal/testing/golden"
)

var settings = board.Settings{HelperImage: "t9k-operator:test", HelperCommand: []string{"/t9k-operator"}, Proxy: true,
	User: board.DefaultUser}

// TestObjectsMatchGoldenFiles verifies for each manifest in testdata that its objects, or its errors, equal the golden
// file beside it.
func TestObjectsMatchGoldenFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			golden.Compare(t, file+".txt", rendered(t, read(t, file)))
		})
	}
}

func read(t *testing.T, file string) *tensorboard.TensorBoard {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tb := &tensorboard.TensorBoard{}
	if err := yaml.UnmarshalStrict(data, tb); err != nil {
		t.Fatal(err)
	}
	tb.Namespace, tb.UID = "ns", "uid"
	return tb
}

func rendered(t *testing.T, tb *tensorboard.TensorBoard) string {
	t.Helper()
	logs, errs := board.Convert(&tb.Spec)
	if len(errs) > 0 {
		return errs.ToAggregate().Error() + "\n"
	}
	var b strings.Builder
	for _, o := range []runtime.Object{board.Service(tb), board.Deployment(tb, logs, settings)} {
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString("---\n")
		b.Write(text)
	}
	return b.String()
}

// TestDiffersReportsOnlyChanges verifies that Differs is false for an unchanged spec, true for each of several changes
// of the spec, and false again for the result of Updated.
func TestDiffersReportsOnlyChanges(t *testing.T) {
	tb := read(t, "testdata/fileset-of-a-claim.yaml")
	same := func(change func(*tensorboard.TensorBoard)) bool {
		logs, _ := board.Convert(&tb.Spec)
		live := board.Deployment(tb, logs, settings)
		changed := tb.DeepCopy()
		change(changed)
		logs, errs := board.Convert(&changed.Spec)
		if len(errs) > 0 {
			t.Fatal(errs.ToAggregate())
		}
		want := board.Deployment(changed, logs, settings)
		if next := board.Updated(live, want); board.Differs(next, want) {
			t.Error("the updated Deployment still differs")
		}
		return !board.Differs(live, want)
	}
	suspend := true
	for name, test := range map[string]struct {
		same   bool
		change func(*tensorboard.TensorBoard)
	}{
		"nothing": {true, func(*tensorboard.TensorBoard) {}},
		"status":  {true, func(tb *tensorboard.TensorBoard) { tb.Status.Phase = tensorboard.Running }},
		"suspend": {false, func(tb *tensorboard.TensorBoard) { tb.Spec.Suspend = &suspend }},
		"image":   {false, func(tb *tensorboard.TensorBoard) { tb.Spec.Image = "other" }},
		"logs":    {false, func(tb *tensorboard.TensorBoard) { tb.Spec.TrainingLogFilesets[0] += "/more" }},
	} {
		if got := same(test.change); got != test.same {
			t.Errorf("%s changes: the Deployment is the same: %t, want %t", name, got, test.same)
		}
	}
}
