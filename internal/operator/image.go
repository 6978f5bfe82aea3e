package operator

import (
	"context"
	"fmt"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tensorstack.dev/batch/internal/version"
)

// ownImage returns the image of the operator's own pod; outside of a pod, the image of this version's release.
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
		return "", fmt.Errorf("reading this pod to find its image: %w; tensorBoards.helperImage in the configuration file replaces it", err)
	}
	return operatorImage(pod)
}

// containerName is the name of the operator's container in config/operator/deployment.yaml.
const containerName = "operator"

// operatorImage returns the image of the container that runs the operator: the container with the name containerName
// or, if none has this name, the only container. The first container may be an injected sidecar.
func operatorImage(pod *corev1.Pod) (string, error) {
	all := pod.Spec.Containers
	i := slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == containerName })
	switch {
	case i >= 0:
		return all[i].Image, nil
	case len(all) == 1:
		return all[0].Image, nil
	}
	return "", fmt.Errorf("finding the image of this program: pod %s/%s has %d containers and none is called %q: set tensorBoards.helperImage in the configuration file",
		pod.Namespace, pod.Name, len(all), containerName)
}
