package operator

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tensorstack.dev/batch/internal/version"
)

// ownImage is the image of the pod that this runs in or, outside of pods, that of this version's release.
func ownImage(ctx context.Context, live client.Reader) (string, error) {
	namespace := podNamespace()
	if namespace == "" {
		return "tensorstack/t9k-operator:" + version.Version, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("finding the name of this pod: %w", err)
	}
	pod := &corev1.Pod{}
	if err := live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pod); err != nil {
		return "", fmt.Errorf("finding the image of this pod, which --helper-image would say: %w", err)
	}
	return pod.Spec.Containers[0].Image, nil
}
