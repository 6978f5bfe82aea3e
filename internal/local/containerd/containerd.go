// Package containerd checks and cleans up the machine's containerd when a cluster's kubelet runs its pods there. It
// speaks to containerd only through the CRI and does not start it. Start reading at Check.
package containerd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	pb "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// timeout limits the total time of one call of Check or RemovePods.
const timeout = 30 * time.Second

// client is a CRI client of a containerd.
type client struct {
	pb.RuntimeServiceClient
	// logs is the directory of the pod logs of the cluster. The log path of a container shows whether the container
	// belongs to the cluster.
	logs string
}

// with calls f with a client of the containerd at socket and with a context that has the timeout.
func with(ctx context.Context, socket, logs string, f func(context.Context, *client) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("containerd at %s: %w", socket, err)
	}
	defer conn.Close()
	if err := f(ctx, &client{pb.NewRuntimeServiceClient(conn), logs}); err != nil {
		return fmt.Errorf("containerd at %s: %w", socket, err)
	}
	return nil
}

// Check returns an error unless the containerd at socket answers, has a network for pods, and runs no pods with a
// container of another kubelet. Two kubelets on one containerd remove each other's pods. logs is the directory of the
// pod logs of the cluster.
func Check(ctx context.Context, socket, logs string) error {
	return with(ctx, socket, logs, func(ctx context.Context, c *client) error {
		if _, err := c.Version(ctx, &pb.VersionRequest{}); err != nil {
			return errors.New(status.Convert(err).Message())
		}
		if err := c.networkReady(ctx); err != nil {
			return err
		}
		pods, err := c.pods(ctx)
		if err != nil {
			return err
		}
		for _, p := range pods {
			if p.foreign {
				return fmt.Errorf("it runs pod %s of another kubelet, which this one would remove; use a containerd of its own", p.name)
			}
		}
		return nil
	})
}

// networkReady returns an error if containerd has no network for pods.
func (c *client) networkReady(ctx context.Context) error {
	answer, err := c.Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return fmt.Errorf("asking for its state: %w", err)
	}
	for _, condition := range answer.Status.GetConditions() {
		if condition.Type == pb.NetworkReady && !condition.Status {
			return fmt.Errorf("it has no network for pods (%s); docs/operations.md has a configuration of CNI to start with", condition.Message)
		}
	}
	return nil
}

// RemovePods stops and removes all pods of the containerd at socket, except those with a container of another kubelet.
// logs is the directory of the pod logs of the cluster.
func RemovePods(ctx context.Context, socket, logs string) error {
	return with(ctx, socket, logs, func(ctx context.Context, c *client) error {
		pods, err := c.pods(ctx)
		if err != nil {
			return err
		}
		var errs []error
		for _, p := range pods {
			if p.foreign {
				continue
			}
			if err := c.remove(ctx, p); err != nil {
				errs = append(errs, fmt.Errorf("removing pod %s: %w", p.name, err))
			}
		}
		return errors.Join(errs...)
	})
}

// pod is a sandbox and its containers.
type pod struct {
	sandbox, name string
	containers    []string
	foreign       bool // has a container of another kubelet
}

// pods lists all pods of the containerd.
func (c *client) pods(ctx context.Context) ([]pod, error) {
	sandboxes, err := c.ListPodSandbox(ctx, &pb.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	containers, err := c.ListContainers(ctx, &pb.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("listing containers: %w", err)
	}
	var pods []pod
	for _, s := range sandboxes.Items {
		p := pod{sandbox: s.Id, name: s.Metadata.GetNamespace() + "/" + s.Metadata.GetName()}
		for _, container := range containers.Containers {
			if container.PodSandboxId != s.Id {
				continue
			}
			ours, err := c.ours(ctx, container.Id)
			if err != nil {
				return nil, fmt.Errorf("reading the state of a container of pod %s: %w", p.name, err)
			}
			p.containers = append(p.containers, container.Id)
			p.foreign = p.foreign || !ours
		}
		pods = append(pods, p)
	}
	return pods, nil
}

// ours reports whether a container belongs to the cluster. It also reports true for a container that is gone.
func (c *client) ours(ctx context.Context, container string) (bool, error) {
	answer, err := c.ContainerStatus(ctx, &pb.ContainerStatusRequest{ContainerId: container})
	if status.Code(err) == codes.NotFound {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return strings.HasPrefix(answer.Status.LogPath, c.logs+"/"), nil
}

// remove stops the pod's containers without a grace period and removes the pod.
func (c *client) remove(ctx context.Context, p pod) error {
	for _, id := range p.containers {
		if _, err := c.StopContainer(ctx, &pb.StopContainerRequest{ContainerId: id}); err != nil && status.Code(err) != codes.NotFound {
			return err
		}
	}
	if _, err := c.StopPodSandbox(ctx, &pb.StopPodSandboxRequest{PodSandboxId: p.sandbox}); err != nil {
		return err
	}
	_, err := c.RemovePodSandbox(ctx, &pb.RemovePodSandboxRequest{PodSandboxId: p.sandbox})
	return err
}
