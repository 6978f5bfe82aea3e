package output

import (
	"context"
	"errors"
	"io"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/selection"
	"tensorstack.dev/batch/internal/observed"
	"tensorstack.dev/batch/internal/podlog"
)

// Pod is a pod of a selected replica.
type Pod struct {
	*corev1.Pod
	selection.Replica
	// Container is the name of the container whose log is read.
	Container string
	// Attempt is the number of the replica's attempt to which the pod belongs, counted from 0.
	Attempt int
}

// PodOf returns the pod of a selected replica; nil for any other pod.
func PodOf(s *selection.Selection, p *corev1.Pod) *Pod {
	r, container, selected := s.Find(p)
	if !selected {
		return nil
	}
	attempt, _ := strconv.Atoi(p.Labels[batch.LabelReplicaAttempt])
	return &Pod{Pod: p, Replica: r, Container: container, Attempt: attempt}
}

// Init returns the name of the init container whose failure kept the replica from starting; empty if there is none.
func Init(p *corev1.Pod) string {
	if end := observed.End(p); end.Init {
		return end.Container
	}
	return ""
}

// Open returns a function that requests the log of the pod's container.
func (p *Pod) Open(c *kit.Cluster) podlog.Opener {
	open := podlog.OpenerOf(c.Core.Pods(p.Namespace), p.Name, p.UID)
	return func(ctx context.Context, opts *corev1.PodLogOptions) (io.ReadCloser, error) {
		opts.Container = p.Container
		return open(ctx, opts)
	}
}

// Missing returns a text that explains an error of reading the output of a replica; empty for context.Canceled, because
// the reading was then stopped on purpose.
func Missing(err error) string {
	switch {
	case errors.Is(err, context.Canceled):
		return ""
	case errors.Is(err, podlog.ErrGone), apierrors.IsNotFound(err):
		return "its pod was deleted before all of its output was read"
	case apierrors.IsBadRequest(err):
		return "no output: " + err.Error()
	}
	return "its output cannot be read: " + err.Error()
}
