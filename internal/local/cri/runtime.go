package cri

import (
	"context"

	pb "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const version = "1.0.0"

// Version returns the name and the versions of the runtime.
func (s *server) Version(context.Context, *pb.VersionRequest) (*pb.VersionResponse, error) {
	return &pb.VersionResponse{Version: "0.1.0", RuntimeName: "process", RuntimeVersion: version, RuntimeApiVersion: "v1"}, nil
}

// Status reports that the runtime and its network are ready. They always are, because Serve sets them up before it
// serves.
func (s *server) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{
		Status: &pb.RuntimeStatus{Conditions: []*pb.RuntimeCondition{{Type: pb.RuntimeReady, Status: true}, {Type: pb.NetworkReady, Status: true}}},
		RuntimeHandlers: []*pb.RuntimeHandler{
			{Features: &pb.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true}}, // the default handler, which has no name
		},
		Features: &pb.RuntimeFeatures{SupplementalGroupsPolicy: true},
	}, nil
}

// RuntimeConfig names a cgroup driver, which the kubelet requires. This runtime creates no cgroups.
func (s *server) RuntimeConfig(context.Context, *pb.RuntimeConfigRequest) (*pb.RuntimeConfigResponse, error) {
	return &pb.RuntimeConfigResponse{Linux: &pb.LinuxRuntimeConfiguration{CgroupDriver: pb.CgroupDriver_CGROUPFS}}, nil
}

// UpdateRuntimeConfig has no effect: pods get addresses from the bridge's subnet, not from the node's pod range.
func (s *server) UpdateRuntimeConfig(context.Context, *pb.UpdateRuntimeConfigRequest) (*pb.UpdateRuntimeConfigResponse, error) {
	return &pb.UpdateRuntimeConfigResponse{}, nil
}

// UpdateContainerResources succeeds without effect, because this runtime does not enforce limits.
func (s *server) UpdateContainerResources(context.Context, *pb.UpdateContainerResourcesRequest) (*pb.UpdateContainerResourcesResponse, error) {
	return &pb.UpdateContainerResourcesResponse{}, nil
}
