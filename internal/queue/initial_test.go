package queue

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

const twoQueues = `
---
apiVersion: scheduler.tensorstack.dev/v1beta1
kind: Queue
metadata: {name: research}
spec:
  priority: 3
---
apiVersion: scheduler.tensorstack.dev/v1beta1
kind: Queue
metadata: {name: production}
spec: {}
`

func readInitial(t *testing.T, text string) ([]client.Object, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "queues.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return ReadInitial(path)
}

func TestInitialQueuesAreReadFromAFile(t *testing.T) {
	const own = "---\napiVersion: scheduler.tensorstack.dev/v1beta1\nkind: Queue\nmetadata: {name: default}\nspec: {closed: true}\n"
	for name, c := range map[string]struct{ text, want string }{
		"an empty file has the default queue": {"", "default"},
		"queues of the file":                  {twoQueues, "research production default"},
		"the file may have the default queue": {own, "default"},
	} {
		t.Run(name, func(t *testing.T) {
			queues, err := readInitial(t, c.text)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, q := range queues {
				names = append(names, q.GetName())
			}
			if got := strings.Join(names, " "); got != c.want {
				t.Errorf("queues %s, want %s", got, c.want)
			}
		})
	}
	if queues, err := ReadInitial(""); err != nil || len(queues) != 1 {
		t.Errorf("without a file: %d queues, %v", len(queues), err)
	}
}

func TestBadFileOfQueuesIsRefused(t *testing.T) {
	const head = "apiVersion: scheduler.tensorstack.dev/v1beta1\nkind: Queue\n"
	for text, want := range map[string]string{
		head + "metadata: {name: q}\nspec: {quotas: 1}\n": "unknown field",
		head + "spec: {}\n": "has no name",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n": "is not a Queue",
		"apiVersion: {\n": "queues.yaml",
	} {
		if _, err := readInitial(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	if _, err := ReadInitial("testdata/none.yaml"); err == nil {
		t.Error("a missing file was accepted")
	}
}

// TestInitialQueuesAreCreatedOnce verifies that an existing queue is not changed, and that a refused queue does not
// block the others.
func TestInitialQueuesAreCreatedOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	there := &scheduling.Queue{}
	there.Name, there.Spec.Priority = "production", 7
	refused := 0
	c := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(there).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if o.GetName() == "research" {
				if refused++; refused == 2 {
					cancel()
				}
				return apierrors.NewBadRequest("no")
			}
			return c.Create(ctx, o, opts...)
		},
	}).Build()
	queues, err := readInitial(t, twoQueues)
	if err != nil {
		t.Fatal(err)
	}
	if err := ensure(ctx, c, queues); err != nil {
		t.Fatal(err)
	}
	var all scheduling.QueueList
	if err := c.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Items) != 2 || all.Items[0].Name != "default" || all.Items[1].Spec.Priority != 7 {
		t.Errorf("queues %+v", all.Items)
	}
	if refused != 2 {
		t.Errorf("the refused queue was tried %d times", refused)
	}
}
