package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"batch.tensorstack.dev/shim"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pb "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// containerState is the content of a container's state file. Times are Unix times in nanoseconds.
type containerState struct {
	ID, Sandbox                string
	Created, Started, Finished int64
	State                      pb.ContainerState
	Process                    processID // the shim, recorded before it starts the command
	Code                       int32
	Reason, Message            string
}

// container is a container that the runtime manages: its saved state, its config and, while it runs, its shim.
type container struct {
	containerState
	config  *pb.ContainerConfig
	spec    *shim.Spec
	process *process      // the shim; nil unless the container runs
	claimed bool          // StartContainer was called
	ended   chan struct{} // closed by end
	end     func()        // closes ended; can be called several times
}

// newContainer returns a container with the state st. It saves nothing and starts nothing.
func newContainer(st containerState, config *pb.ContainerConfig, spec *shim.Spec) *container {
	c := &container{containerState: st, config: config, spec: spec}
	c.ended = make(chan struct{})
	c.end = sync.OnceFunc(func() { close(c.ended) })
	return c
}

// Reasons in the status of a container. Other runtimes use the same reasons.
const (
	reasonCompleted  = "Completed"
	reasonError      = "Error"
	reasonStartError = "StartError"
)

// saveContainer writes the container's state file. The caller holds mu or is the only user of c.
func (s *server) saveContainer(c *container) error {
	return writeJSON(filepath.Join(s.cfg.containerDir(c.ID), stateFile), c.containerState)
}

// CreateContainer validates and records a container, and creates missing directories for its log and its mounts.
// StartContainer does everything else.
func (s *server) CreateContainer(_ context.Context, q *pb.CreateContainerRequest) (*pb.CreateContainerResponse, error) {
	s.mu.Lock()
	sb := s.sandboxes[q.PodSandboxId]
	s.mu.Unlock()
	if sb == nil {
		return nil, status.Errorf(codes.NotFound, "there is no sandbox %q", q.PodSandboxId)
	}
	spec, err := s.spec(sb, q.Config)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if spec.LogPath != "" {
		if err := os.MkdirAll(filepath.Dir(spec.LogPath), 0o755); err != nil {
			return nil, fmt.Errorf("making the log directory: %w", err)
		}
	}
	c := newContainer(containerState{ID: newID(), Sandbox: sb.ID, Created: time.Now().UnixNano()}, q.Config, spec)
	dir := s.cfg.containerDir(c.ID)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	err = writeJSON(filepath.Join(dir, shim.SpecFile), spec)
	if err == nil {
		err = writeState(dir, c.containerState, c.config)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("recording the container: %w", err), removeAll(dir))
	}
	s.mu.Lock()
	s.containers[c.ID] = c
	s.mu.Unlock()
	s.notify(c.ID, sb.ID, pb.ContainerEventType_CONTAINER_CREATED_EVENT)
	return &pb.CreateContainerResponse{ContainerId: c.ID}, nil
}

// StartContainer starts the container's command and returns when it runs. If the start fails, the container counts as
// exited.
func (s *server) StartContainer(ctx context.Context, q *pb.StartContainerRequest) (*pb.StartContainerResponse, error) {
	c, err := s.container(q.ContainerId)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if c.State != pb.ContainerState_CONTAINER_CREATED || c.claimed {
		state := c.State
		s.mu.Unlock()
		return nil, status.Errorf(codes.FailedPrecondition, "container %s is in state %s and cannot start", c.ID, state)
	}
	c.claimed = true
	s.mu.Unlock()
	started := time.Now().UnixNano()
	p, err := s.launch(ctx, c)
	s.mu.Lock()
	c.Started = started
	if err != nil {
		c.State, c.Code, c.Finished = pb.ContainerState_CONTAINER_EXITED, shim.StartFailed, time.Now().UnixNano()
		c.Reason, c.Message = reasonStartError, err.Error()
	} else {
		c.State, c.process = pb.ContainerState_CONTAINER_RUNNING, p
	}
	saved := s.saveContainer(c)
	s.mu.Unlock()
	if err != nil {
		c.end()
		return nil, errors.Join(err, saved)
	}
	if saved != nil { // the next server reads the started file instead
		s.cfg.Log.Error(saved, "Cannot record the start of a container", "container", c.ID)
	}
	s.startWatch(c, p)
	s.notify(c.ID, c.Sandbox, pb.ContainerEventType_CONTAINER_STARTED_EVENT)
	return &pb.StartContainerResponse{}, nil
}

// watch waits until the container exits and records the exit. It returns without a record if ctx ends first.
func (s *server) watch(ctx context.Context, c *container, p *process) {
	ws, reaped, err := p.wait(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.cfg.Log.Error(err, "Cannot wait for a container", "container", c.ID)
		}
		return
	}
	var fallback *unix.WaitStatus
	if reaped {
		fallback = &ws
	}
	s.recordExit(c, fallback)
}

// recordExit records the exit of a container whose shim is gone. It uses the exit code that the shim wrote. If the shim
// wrote none, it uses the exit code of the shim itself from fallback, or 137 (SIGKILL) if fallback is nil or the shim
// was killed.
func (s *server) recordExit(c *container, fallback *unix.WaitStatus) {
	var e shim.Exit
	if err := readJSON(filepath.Join(s.cfg.containerDir(c.ID), shim.ExitFile), &e); err != nil {
		e = shim.Exit{Code: 128 + int32(unix.SIGKILL), Finished: time.Now().UnixNano(), Message: "the container was killed"}
		if fallback != nil && fallback.Exited() {
			e.Code, e.Message = int32(fallback.ExitStatus()), ""
		}
	}
	s.mu.Lock()
	c.State, c.Code, c.Finished, c.Message, c.Reason = pb.ContainerState_CONTAINER_EXITED, e.Code, e.Finished, e.Message, reasonCompleted
	if e.Code != 0 {
		c.Reason = reasonError
	}
	if c.process != nil {
		c.process.close()
		c.process = nil
	}
	err := s.saveContainer(c)
	s.mu.Unlock()
	if err != nil { // the next server reads the exit file instead
		s.cfg.Log.Error(err, "Cannot record the exit of a container", "container", c.ID)
	}
	c.end()
	s.notify(c.ID, c.Sandbox, pb.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// container returns the container with this ID, or a NotFound error.
func (s *server) container(id string) (*container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.containers[id]; c != nil {
		return c, nil
	}
	return nil, status.Errorf(codes.NotFound, "there is no container %q", id)
}

// running returns the container with this ID and its process, or an error if the container does not run.
func (s *server) running(id string) (*container, *process, error) {
	c, err := s.container(id)
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.process == nil {
		return nil, nil, status.Errorf(codes.FailedPrecondition, "container %s does not run", id)
	}
	return c, c.process, nil
}

// containersOf lists the containers of a sandbox.
func (s *server) containersOf(sandbox string) (out []*container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.containers {
		if c.Sandbox == sandbox {
			out = append(out, c)
		}
	}
	return out
}

// StopContainer stops the container with its stop signal and, after the timeout of the request, with SIGKILL.
func (s *server) StopContainer(ctx context.Context, q *pb.StopContainerRequest) (*pb.StopContainerResponse, error) {
	c, err := s.container(q.ContainerId)
	if err != nil {
		return &pb.StopContainerResponse{}, nil // the CRI requires success for an unknown container
	}
	return &pb.StopContainerResponse{}, s.stop(ctx, c, time.Duration(q.Timeout)*time.Second)
}

// RemoveContainer kills the container if it runs, and removes it with its layer.
func (s *server) RemoveContainer(ctx context.Context, q *pb.RemoveContainerRequest) (*pb.RemoveContainerResponse, error) {
	c, err := s.container(q.ContainerId)
	if err != nil {
		return &pb.RemoveContainerResponse{}, nil // the CRI requires success for an unknown container
	}
	return &pb.RemoveContainerResponse{}, s.remove(ctx, c)
}

// remove kills the container if it runs, and deletes its directory.
func (s *server) remove(ctx context.Context, c *container) error {
	if err := s.stop(ctx, c, 0); err != nil {
		return err
	}
	if err := removeAll(s.cfg.containerDir(c.ID)); err != nil {
		return fmt.Errorf("removing container %s: %w", c.ID, err)
	}
	s.mu.Lock()
	delete(s.containers, c.ID)
	s.mu.Unlock()
	s.notify(c.ID, c.Sandbox, pb.ContainerEventType_CONTAINER_DELETED_EVENT)
	return nil
}
