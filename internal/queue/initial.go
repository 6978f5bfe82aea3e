package queue

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/config"
)

// ReadInitial returns the queues that the operator creates if they do not exist: the queues in the file at path, and
// the default queue. If the file defines the default queue, that definition applies. An empty path means no file.
func ReadInitial(path string) ([]client.Object, error) {
	var initial []client.Object
	if path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading the queues to create: %w", err)
		}
		if initial, err = parseQueues(data); err != nil {
			return nil, fmt.Errorf("reading the queues to create from %s: %w", path, err)
		}
	}
	if slices.ContainsFunc(initial, func(q client.Object) bool { return q.GetName() == scheduling.DefaultQueue }) {
		return initial, nil // the file defines the default queue
	}
	byDefault, err := config.DefaultQueue()
	if err != nil {
		return nil, err
	}
	return append(initial, byDefault), nil
}

// parseQueues parses YAML documents. Every document that is not empty must be a queue without unknown fields.
func parseQueues(data []byte) ([]client.Object, error) {
	var queues []client.Object
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return queues, nil
		}
		if err != nil {
			return nil, err
		}
		q := &scheduling.Queue{}
		if err := yaml.UnmarshalStrict(document, q); err != nil {
			return nil, err
		}
		if q.TypeMeta == (metav1.TypeMeta{}) && q.Name == "" {
			continue // an empty document
		}
		if q.Kind != "Queue" || q.APIVersion != scheduling.GroupVersion.String() {
			return nil, fmt.Errorf("%s of %s is not a Queue of %s", q.Kind, q.APIVersion, scheduling.GroupVersion)
		}
		if q.Name == "" {
			return nil, errors.New("a queue has no name")
		}
		queues = append(queues, q)
	}
}

// ensure creates the queues that do not exist, and tries again every second until all exist or ctx ends. A queue that
// cannot be created does not block the others. The queues are not part of the manifests, because the manifests are
// applied together with the CRD, and the API server would refuse queues at that time.
func ensure(ctx context.Context, c client.Client, queues []client.Object) error {
	left := slices.Clone(queues)
	_ = wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		left = slices.DeleteFunc(left, func(queue client.Object) bool {
			err := c.Create(ctx, queue.DeepCopyObject().(client.Object))
			switch {
			case err == nil:
				logf.FromContext(ctx).Info("Created an initial queue", "queue", klog.KObj(queue))
				return true
			case apierrors.IsAlreadyExists(err):
				return true
			}
			logf.FromContext(ctx).Error(err, "Cannot create an initial queue; trying again", "queue", klog.KObj(queue))
			return false
		})
		return len(left) == 0, nil
	}) // the poll fails only if the context ends
	return nil
}
