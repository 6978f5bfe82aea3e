package observed

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"tensorstack.dev/batch/internal/engine"
)

// Rendered yields the objects that the operator creates when a job starts for the first time, in this order: PodGroup,
// Service and pods. It yields at most perRole pods of each role; 0 means all. An object that cannot be converted comes
// with an error, and the loop may continue.
func Rendered(n *engine.Job, now time.Time, perRole int) iter.Seq2[*unstructured.Unstructured, error] {
	return func(yield func(*unstructured.Unstructured, error) bool) {
		plan := engine.Next(n, engine.Seen{Now: now}, engine.Config{})
		if perRole > 0 {
			count := map[int]int{}
			plan.Pods = slices.DeleteFunc(plan.Pods, func(p engine.NewPod) bool {
				count[p.Role]++
				return count[p.Role] > perRole
			})
		}
		for object := range plan.Objects(n) {
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
			if err != nil {
				err = fmt.Errorf("rendering %s: %w", object.GetName(), err)
			}
			delete(content, "status") // the status of a new object is empty
			if !yield(&unstructured.Unstructured{Object: content}, err) {
				return
			}
		}
	}
}
