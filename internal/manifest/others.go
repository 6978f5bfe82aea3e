package manifest

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
)

// other is a kind of this project that is not a kind of job.
type other struct {
	of         schema.GroupVersionKind
	plural     string
	namespaced bool
	// check checks an object with Go code; nil if only the schema applies.
	check codeCheck
}

var others = []other{
	{of: tensorboard.GroupVersion.WithKind("TensorBoard"), plural: "tensorboards", namespaced: true, check: checkTensorBoard},
	{of: scheduling.GroupVersion.WithKind("Queue"), plural: "queues"},
	{of: scheduling.GroupVersion.WithKind("PodGroup"), plural: "podgroups", namespaced: true},
}

// known returns the kinds and the version of an API group of this project. It returns nothing for other groups.
func known(group string) (names []string, version string) {
	if group == batch.GroupVersion.Group {
		for _, k := range kinds.All {
			names = append(names, k.Name)
		}
		return names, batch.GroupVersion.Version
	}
	for _, o := range others {
		if o.of.Group == group {
			names, version = append(names, o.of.Kind), o.of.Version
		}
	}
	return names, version
}

func (c *Checker) checkOther(ctx context.Context, r *Result, o other) error {
	return c.checkCustom(ctx, r, o.of.GroupVersion().WithResource(o.plural), o.namespaced, o.check)
}

func checkTensorBoard(u *unstructured.Unstructured) (field.ErrorList, error) {
	tb := &tensorboard.TensorBoard{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, tb); err != nil {
		return nil, err
	}
	return kinds.ValidateTensorBoard(&tb.Spec, field.NewPath("spec")), nil
}
