// Package convert converts training jobs of Kubeflow's training operator (kubeflow.org/v1) to the jobs of this product.
// No field is lost silently: each is converted or named in a note. The package does no I/O. Start reading at Job.
package convert

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// Group and Version identify the API whose jobs are converted.
const (
	Group   = "kubeflow.org"
	Version = "v1"
)

// Kinds of Kubeflow that can be converted.
const (
	pyTorchJob = "PyTorchJob"
	tfJob      = "TFJob"
)

// Note is a remark about one field of a manifest.
type Note struct {
	// Path is the path of the field in the manifest, for example spec.runPolicy.backoffLimit.
	Path string
	// Message says what happened to the field, why, and what to do about it.
	Message string
}

// String returns the note as PATH: MESSAGE.
func (n Note) String() string { return n.Path + ": " + n.Message }

// Error lists the reasons why a manifest cannot be converted.
type Error []Note

// Error returns the reasons, one per line.
func (e Error) Error() string {
	lines := make([]string, len(e))
	for i, n := range e {
		lines[i] = n.String()
	}
	return strings.Join(lines, "\n")
}

// Job converts a job of Kubeflow without modifying it. The notes, sorted by path, name every field whose conversion is
// not exact. A non-nil error is of type Error.
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
		c.warn("status", "left out: the operator writes the status")
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
		c.warn(path, fmt.Sprintf("left out: %s of %s/%s has no such field; check its name", gvk.Kind, Group, Version))
	}
	if len(c.errs) > 0 {
		return nil, nil, c.errs
	}
	slices.SortStableFunc(c.notes, func(a, b Note) int { return strings.Compare(a.Path, b.Path) })
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": batch.GroupVersion.String(), "kind": kind, "metadata": meta, "spec": c.spec,
	}}, c.notes, nil
}

// conversion is the state of the conversion of one manifest.
type conversion struct {
	// source holds the fields that have not been converted yet.
	source
	// spec is the new spec.
	spec map[string]any
	// name is the name of the job; empty if the API server generates it.
	name  string
	notes []Note
	errs  Error
}

func (c *conversion) warn(path, message string) { c.notes = append(c.notes, Note{path, message}) }
func (c *conversion) fail(path, message string) { c.errs = append(c.errs, Note{path, message}) }

// set writes a field of the new spec.
func (c *conversion) set(value any, path ...string) {
	// SetNestedField cannot fail here, because only this function creates the parents of a field, and they are maps.
	_ = unstructured.SetNestedField(c.spec, value, path...)
}

// metaFields are the fields of an object's metadata that users write.
var metaFields = []string{"name", "generateName", "namespace", "labels", "annotations", "finalizers"}

// lastApplied is the annotation in which kubectl stores a job's manifest.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

func (c *conversion) metadata() map[string]any {
	meta := map[string]any{}
	if annotations, ok, _ := unstructured.NestedMap(c.fields, "metadata", "annotations"); ok && annotations[lastApplied] != nil {
		c.drop("metadata", "annotations", lastApplied)
		c.warn("metadata.annotations."+lastApplied, "left out: it contains the old manifest")
	}
	for _, field := range metaFields {
		if v, ok := c.take("metadata", field); ok {
			meta[field] = v
		}
	}
	if labels, ok := meta["labels"].(map[string]any); ok && labels[kueueLabel] != nil {
		c.warn("metadata.labels."+kueueLabel, "carried over, but Kueue does not support the new kind: name a queue in scheduler.t9kScheduler.queue")
	}
	rest, _ := c.fields["metadata"].(map[string]any)
	for field := range rest {
		c.drop("metadata", field)
		c.warn("metadata."+field, "left out: the cluster sets it")
	}
	c.drop("metadata")
	return meta
}

const kueueLabel = "kueue.x-k8s.io/queue-name"
