// Package convert turns training jobs of Kubeflow's training operator (kubeflow.org/v1) into those of this product. Nothing is
// lost in silence: what a manifest says is either carried over or named in a warning. The package is pure.
package convert

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// Group is the API group whose jobs are converted, Version the version.
const (
	Group   = "kubeflow.org"
	Version = "v1"
)

// Kinds of Kubeflow that can be converted.
const (
	pyTorchJob = "PyTorchJob"
	tfJob      = "TFJob"
)

// Note speaks of one field of a manifest.
type Note struct {
	// Path of the field as it stands in the manifest, for example spec.runPolicy.backoffLimit.
	Path string
	// Message says what became of the field, why, and what to do about it.
	Message string
}

func (n Note) String() string { return n.Path + ": " + n.Message }

// Error lists what keeps a manifest from being converted.
type Error []Note

func (e Error) Error() string {
	lines := make([]string, len(e))
	for i, n := range e {
		lines[i] = n.String()
	}
	return strings.Join(lines, "\n")
}

// Job converts a job of Kubeflow, which it leaves as it is. The notes name, by path, all that is not carried
// over as it was. The error is an Error.
func Job(from *unstructured.Unstructured) (*unstructured.Unstructured, []Note, error) {
	c := &conversion{source: source{from.DeepCopy().Object}, spec: map[string]any{}}
	gvk := from.GroupVersionKind()
	if gvk.Group != Group || gvk.Version != Version || gvk.Kind != pyTorchJob && gvk.Kind != tfJob {
		return nil, nil, Error{{"kind", fmt.Sprintf("%s of %s cannot be converted: only %s and %s of %s/%s can", gvk.Kind, from.GetAPIVersion(),
			pyTorchJob, tfJob, Group, Version)}}
	}
	c.drop("apiVersion")
	c.drop("kind")
	meta := c.metadata()
	c.name, _ = meta["name"].(string)
	if _, ok := c.take("status"); ok {
		c.warn("status", "left out: the operator writes its own")
	}
	kind := "TensorFlowTrainingJob"
	if gvk.Kind == pyTorchJob {
		kind = "PyTorchTrainingJob"
		c.pyTorch()
	} else {
		c.tensorFlow()
	}
	c.runPolicy()
	for _, path := range c.left() {
		c.warn(path, fmt.Sprintf("left out: %s of %s/%s has no such field; see whether its name is right", gvk.Kind, Group, Version))
	}
	if len(c.errs) > 0 {
		return nil, nil, c.errs
	}
	slices.SortStableFunc(c.notes, func(a, b Note) int { return strings.Compare(a.Path, b.Path) })
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": batch.GroupVersion.String(), "kind": kind, "metadata": meta, "spec": c.spec,
	}}, c.notes, nil
}

// conversion is one manifest on its way.
type conversion struct {
	// source is what has not been converted yet.
	source
	// spec is the new spec.
	spec map[string]any
	// name of the job; empty where a cluster is to make it up.
	name  string
	notes []Note
	errs  Error
}

func (c *conversion) warn(path, message string) { c.notes = append(c.notes, Note{path, message}) }
func (c *conversion) fail(path, message string) { c.errs = append(c.errs, Note{path, message}) }

// set writes a field of the new spec.
func (c *conversion) set(value any, path ...string) {
	// The parents are maps that only this function makes, so it cannot fail.
	_ = unstructured.SetNestedField(c.spec, value, path...)
}

// metaFields are those of an object's metadata that people write.
var metaFields = []string{"name", "generateName", "namespace", "labels", "annotations", "finalizers"}

// lastApplied is where kubectl keeps the manifest of a job in the job.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

func (c *conversion) metadata() map[string]any {
	meta := map[string]any{}
	if annotations, ok, _ := unstructured.NestedMap(c.fields, "metadata", "annotations"); ok && annotations[lastApplied] != nil {
		c.drop("metadata", "annotations", lastApplied)
		c.warn("metadata.annotations."+lastApplied, "left out: it holds the old manifest")
	}
	for _, field := range metaFields {
		if v, ok := c.take("metadata", field); ok {
			meta[field] = v
		}
	}
	if labels, ok := meta["labels"].(map[string]any); ok && labels[kueueLabel] != nil {
		c.warn("metadata.labels."+kueueLabel, "carried over, but Kueue does not know the new kind: scheduler.t9kScheduler.queue names a queue")
	}
	rest, _ := c.fields["metadata"].(map[string]any)
	for field := range rest {
		c.drop("metadata", field)
		c.warn("metadata."+field, "left out: the cluster writes its own")
	}
	c.drop("metadata")
	return meta
}

const kueueLabel = "kueue.x-k8s.io/queue-name"
