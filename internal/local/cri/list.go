package cri

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pb "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// matchesLabels reports whether labels has every entry of selector.
func matchesLabels(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// sandboxStatus describes a sandbox. It returns nil if there is none with this ID. The caller holds mu.
func (s *server) sandboxStatus(id string) *pb.PodSandboxStatus {
	sb := s.sandboxes[id]
	if sb == nil {
		return nil
	}
	options := sb.config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	return &pb.PodSandboxStatus{
		Id: sb.ID, Metadata: sb.config.Metadata, State: sb.state(), CreatedAt: sb.Created,
		Labels: sb.config.Labels, Annotations: sb.config.Annotations, Network: &pb.PodSandboxNetworkStatus{Ip: sb.IP},
		Linux: &pb.LinuxPodSandboxStatus{Namespaces: &pb.Namespace{Options: options}},
	}
}

// PodSandboxStatus describes a sandbox and its containers.
func (s *server) PodSandboxStatus(_ context.Context, q *pb.PodSandboxStatusRequest) (*pb.PodSandboxStatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.sandboxStatus(q.PodSandboxId)
	if st == nil {
		return nil, status.Errorf(codes.NotFound, "there is no sandbox %q", q.PodSandboxId)
	}
	return &pb.PodSandboxStatusResponse{Status: st, ContainersStatuses: s.containerStatuses(st.Id), Timestamp: time.Now().UnixNano()}, nil
}

// ListPodSandbox lists the sandboxes that match the filter.
func (s *server) ListPodSandbox(_ context.Context, q *pb.ListPodSandboxRequest) (*pb.ListPodSandboxResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out, f := &pb.ListPodSandboxResponse{}, q.Filter
	for _, sb := range s.sandboxes {
		if f != nil && (f.Id != "" && f.Id != sb.ID || f.State != nil && f.State.State != sb.state() || !matchesLabels(f.LabelSelector, sb.config.Labels)) {
			continue
		}
		out.Items = append(out.Items, &pb.PodSandbox{
			Id: sb.ID, Metadata: sb.config.Metadata, State: sb.state(), CreatedAt: sb.Created,
			Labels: sb.config.Labels, Annotations: sb.config.Annotations,
		})
	}
	return out, nil
}

// selected lists the containers that match the filter. The caller holds mu.
func (s *server) selected(f *pb.ContainerFilter) (out []*container) {
	for _, c := range s.containers {
		if f != nil && (f.Id != "" && f.Id != c.ID || f.State != nil && f.State.State != c.State ||
			f.PodSandboxId != "" && f.PodSandboxId != c.Sandbox || !matchesLabels(f.LabelSelector, c.config.Labels)) {
			continue
		}
		out = append(out, c)
	}
	return out
}

// ListContainers lists the containers that match the filter.
func (s *server) ListContainers(_ context.Context, q *pb.ListContainersRequest) (*pb.ListContainersResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &pb.ListContainersResponse{}
	for _, c := range s.selected(q.Filter) {
		image := c.config.GetImage()
		out.Containers = append(out.Containers, &pb.Container{
			Id: c.ID, PodSandboxId: c.Sandbox, Metadata: c.config.Metadata, Image: image, ImageRef: image.GetImage(), ImageId: image.GetImage(),
			State: c.State, CreatedAt: c.Created, Labels: c.config.Labels, Annotations: c.config.Annotations,
		})
	}
	return out, nil
}

// status describes the container. The caller holds the server's mu.
func (c *container) status() *pb.ContainerStatus {
	image := c.config.GetImage()
	cred := c.spec.Cred
	user := &pb.LinuxContainerUser{Uid: int64(cred.Uid), Gid: int64(cred.Gid), SupplementalGroups: []int64{int64(cred.Gid)}}
	for _, g := range cred.Groups {
		if g != cred.Gid {
			user.SupplementalGroups = append(user.SupplementalGroups, int64(g))
		}
	}
	return &pb.ContainerStatus{
		Id: c.ID, Metadata: c.config.Metadata, State: c.State, CreatedAt: c.Created, StartedAt: c.Started, FinishedAt: c.Finished,
		ExitCode: c.Code, Reason: c.Reason, Message: c.Message, Image: image, ImageRef: image.GetImage(), ImageId: image.GetImage(),
		Labels: c.config.Labels, Annotations: c.config.Annotations, Mounts: c.config.Mounts, LogPath: c.spec.LogPath,
		StopSignal: c.config.StopSignal, User: &pb.ContainerUser{Linux: user},
	}
}

// containerStatuses describes the containers of a sandbox. The caller holds mu.
func (s *server) containerStatuses(sandbox string) (out []*pb.ContainerStatus) {
	for _, c := range s.selected(&pb.ContainerFilter{PodSandboxId: sandbox}) {
		out = append(out, c.status())
	}
	return out
}

// ContainerStatus describes a container.
func (s *server) ContainerStatus(_ context.Context, q *pb.ContainerStatusRequest) (*pb.ContainerStatusResponse, error) {
	c, err := s.container(q.ContainerId)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &pb.ContainerStatusResponse{Status: c.status()}, nil
}
