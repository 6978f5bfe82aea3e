package cri

import (
	"context"
	"time"

	pb "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Every image counts as present. Only its name is kept.

// image returns the description of an image of this name.
func image(name string) *pb.Image {
	// The kubelet treats a size of 0 as an error.
	return &pb.Image{Id: name, RepoTags: []string{name}, Size: 1, Uid: &pb.Int64Value{Value: 0}, Spec: &pb.ImageSpec{Image: name}}
}

// ImageStatus reports that the image is present and that its user is root.
func (s *server) ImageStatus(_ context.Context, q *pb.ImageStatusRequest) (*pb.ImageStatusResponse, error) {
	name := q.GetImage().GetImage()
	s.mu.Lock()
	s.images[name] = true
	s.mu.Unlock()
	return &pb.ImageStatusResponse{Image: image(name)}, nil
}

// PullImage succeeds without pulling anything.
func (s *server) PullImage(_ context.Context, q *pb.PullImageRequest) (*pb.PullImageResponse, error) {
	return &pb.PullImageResponse{ImageRef: q.GetImage().GetImage()}, nil
}

// ListImages lists the images whose status was requested.
func (s *server) ListImages(context.Context, *pb.ListImagesRequest) (*pb.ListImagesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &pb.ListImagesResponse{}
	for name := range s.images {
		out.Images = append(out.Images, image(name))
	}
	return out, nil
}

// RemoveImage removes the image from the list.
func (s *server) RemoveImage(_ context.Context, q *pb.RemoveImageRequest) (*pb.RemoveImageResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.images, q.GetImage().GetImage())
	return &pb.RemoveImageResponse{}, nil
}

// ImageFsInfo names the file system of the containers' layers. Images take no space in it.
func (s *server) ImageFsInfo(context.Context, *pb.ImageFsInfoRequest) (*pb.ImageFsInfoResponse, error) {
	u := []*pb.FilesystemUsage{{
		Timestamp: time.Now().UnixNano(), FsId: &pb.FilesystemIdentifier{Mountpoint: s.cfg.Root},
		UsedBytes: &pb.UInt64Value{}, InodesUsed: &pb.UInt64Value{},
	}}
	return &pb.ImageFsInfoResponse{ImageFilesystems: u, ContainerFilesystems: u}, nil
}
