package cri

import (
	"time"

	"google.golang.org/grpc"
	pb "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// eventBuffer is the number of events that a slow watcher can lag behind before it loses events. The kubelet also lists
// containers periodically, so a lost event only delays its reaction.
const eventBuffer = 1024

// notify sends an event to all watchers. id is a container's ID, or the sandbox's for an event of the sandbox itself.
func (s *server) notify(id, sandbox string, kind pb.ContainerEventType) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.watchers) == 0 {
		return
	}
	e := &pb.ContainerEventResponse{
		ContainerId: id, ContainerEventType: kind, CreatedAt: time.Now().UnixNano(),
		PodSandboxStatus: s.sandboxStatus(sandbox), ContainersStatuses: s.containerStatuses(sandbox),
	}
	for w := range s.watchers {
		select {
		case w <- e:
		default:
		}
	}
}

// GetContainerEvents streams events until the client disconnects.
func (s *server) GetContainerEvents(_ *pb.GetEventsRequest, stream grpc.ServerStreamingServer[pb.ContainerEventResponse]) error {
	w := make(chan *pb.ContainerEventResponse, eventBuffer)
	s.mu.Lock()
	s.watchers[w] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, w)
	}()
	for {
		select {
		case e := <-w:
			if err := stream.Send(e); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}
