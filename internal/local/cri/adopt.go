package cri

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"

	"batch.tensorstack.dev/shim"
	"golang.org/x/sys/unix"
	pb "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// adopt takes over what an earlier server left, however it ended: containers that run go on under the same IDs, ends
// in the meantime are reported as they were, and what was half-made is removed.
func (s *server) adopt(ctx context.Context) error {
	ids, err := names(s.cfg.sandboxes())
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := s.adoptSandbox(id); err != nil {
			return fmt.Errorf("sandbox %s: %w", id, err)
		}
	}
	if ids, err = names(s.cfg.containers()); err != nil {
		return err
	}
	for _, id := range ids {
		if err := s.adoptContainer(ctx, id); err != nil {
			return fmt.Errorf("container %s: %w", id, err)
		}
	}
	for _, sb := range s.sandboxes {
		if err := s.checkSandbox(sb); err != nil {
			return fmt.Errorf("sandbox %s: %w", sb.ID, err)
		}
	}
	return nil
}

func (s *server) adoptSandbox(id string) error {
	sb := &sandbox{config: &pb.PodSandboxConfig{}}
	if err := load(s.cfg.sandboxDir(id), &sb.sandboxState, sb.config); err != nil {
		if len(id) != len(newID()) {
			return nil // not ours
		}
		return wipeSandbox(s.cfg, id)
	}
	s.sandboxes[id] = sb
	if a, err := netip.ParseAddr(sb.IP); err == nil && sb.Ready {
		s.addresses[a] = id
	}
	return nil
}

func (s *server) adoptContainer(ctx context.Context, id string) error {
	dir := s.cfg.containerDir(id)
	var st containerState
	config, spec := &pb.ContainerConfig{}, &shim.Spec{}
	err := load(dir, &st, config)
	if err == nil {
		err = readJSON(filepath.Join(dir, shim.SpecFile), spec)
	}
	if err != nil || s.sandboxes[st.Sandbox] == nil {
		return removeAll(dir)
	}
	c := newContainer(st, config, spec)
	s.containers[id] = c
	switch c.State {
	case pb.ContainerState_CONTAINER_CREATED:
		if started, err := s.settle(ctx, c); err != nil || !started {
			return err
		}
		c.State = pb.ContainerState_CONTAINER_RUNNING
	case pb.ContainerState_CONTAINER_RUNNING:
	default:
		c.claimed = true
		c.end()
		return nil
	}
	c.claimed = true
	p, err := c.Process.open()
	if errors.Is(err, errGone) {
		s.exited(c, nil)
		return nil
	}
	c.process = p
	s.follow(c, p)
	return nil
}

// settle finds out whether a container that the server was about to start when it died has started. If not, it is
// as good as new once its shim is gone.
func (s *server) settle(ctx context.Context, c *container) (started bool, err error) {
	file := filepath.Join(s.cfg.containerDir(c.ID), shim.StartedFile)
	if exists(file) {
		return true, nil
	}
	p, err := c.Process.open()
	if errors.Is(err, errGone) {
		return exists(file), nil
	}
	defer p.close()
	if err := p.kill(ctx); err != nil {
		return false, err
	}
	if exists(file) {
		return true, nil
	}
	c.Process = processID{}
	return false, s.saveContainer(c)
}

// checkSandbox makes sure that a sandbox called ready is.
func (s *server) checkSandbox(sb *sandbox) error {
	if !sb.Ready {
		return nil
	}
	dir := s.cfg.sandboxDir(sb.ID)
	if s.takeBack(sb) && (sb.Pause.PID == 0 || sb.Pause.alive()) {
		if sb.HostIPC || isMount(filepath.Join(dir, "shm")) {
			return nil
		}
		// Containers that run keep the shared memory they have; those to come share a new one.
		return mountShm(filepath.Join(dir, "shm"))
	}
	sb.Ready = false
	s.freeAddress(sb.ID)
	return errors.Join(unplug(sb.ID), release(dir), writeJSON(filepath.Join(dir, stateFile), sb.sandboxState))
}

// takeBack tells whether the sandbox has its namespaces. Their mounts are gone after a reboot, and when the server ran
// in a mount namespace that ended with it; in that case a container that runs still has them.
func (s *server) takeBack(sb *sandbox) bool {
	alive := 0
	for _, c := range s.containers {
		if c.Sandbox == sb.ID && c.process != nil {
			alive = c.Process.PID
		}
	}
	for _, n := range sb.own() {
		file := filepath.Join(s.cfg.sandboxDir(sb.ID), n.name)
		if pinned(file) {
			continue
		}
		if alive == 0 || unix.Mount(fmt.Sprintf("/proc/%d/ns/%s", alive, n.name), file, "", unix.MS_BIND, "") != nil {
			return false
		}
	}
	return true
}

// isMount tells whether a directory of ours is where something is mounted.
func isMount(dir string) bool {
	var here, above unix.Stat_t
	return unix.Stat(dir, &here) == nil && unix.Stat(filepath.Dir(dir), &above) == nil && here.Dev != above.Dev
}
