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

// adopt takes over the sandboxes and containers of an earlier server. Running containers continue under the same IDs,
// exited containers are reported with their exit codes, and directories that were created only in part are removed.
func (s *server) adopt(ctx context.Context) error {
	ids, err := entryNames(s.cfg.sandboxes())
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := s.adoptSandbox(id); err != nil {
			return fmt.Errorf("sandbox %s: %w", id, err)
		}
	}
	if ids, err = entryNames(s.cfg.containers()); err != nil {
		return err
	}
	for _, id := range ids {
		if err := s.adoptContainer(ctx, id); err != nil {
			return fmt.Errorf("container %s: %w", id, err)
		}
	}
	for _, sb := range s.sandboxes {
		if err := s.restoreSandbox(sb); err != nil {
			return fmt.Errorf("sandbox %s: %w", sb.ID, err)
		}
	}
	return nil
}

// adoptSandbox takes over one sandbox, or removes it if it is incomplete.
func (s *server) adoptSandbox(id string) error {
	sb := &sandbox{config: &pb.PodSandboxConfig{}}
	if err := loadState(s.cfg.sandboxDir(id), &sb.sandboxState, sb.config); err != nil {
		if len(id) != len(newID()) {
			return nil // not a directory of this runtime
		}
		return removeSandboxFiles(s.cfg, id)
	}
	s.sandboxes[id] = sb
	if a, err := netip.ParseAddr(sb.IP); err == nil && sb.Ready {
		s.addresses[a] = id
	}
	return nil
}

// adoptContainer takes over one container, or removes it if it is incomplete or its sandbox is gone.
func (s *server) adoptContainer(ctx context.Context, id string) error {
	dir := s.cfg.containerDir(id)
	var st containerState
	config, spec := &pb.ContainerConfig{}, &shim.Spec{}
	err := loadState(dir, &st, config)
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
		if started, err := s.resolveStart(ctx, c); err != nil || !started {
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
		s.recordExit(c, nil)
		return nil
	}
	c.process = p
	s.startWatch(c, p)
	return nil
}

// resolveStart reports whether the command of a created container has started: the earlier server may have died while
// it started the container. If the command has not started, resolveStart ends the shim, so that the container can be
// started again.
func (s *server) resolveStart(ctx context.Context, c *container) (started bool, err error) {
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

// restoreSandbox mounts the lost namespaces and the lost shared memory of a ready sandbox again. If a namespace cannot
// be restored or the pause process has exited, it marks the sandbox as not ready and releases its address, its network
// device and its mounts.
func (s *server) restoreSandbox(sb *sandbox) error {
	if !sb.Ready {
		return nil
	}
	dir := s.cfg.sandboxDir(sb.ID)
	if s.restoreNamespaces(sb) && (sb.Pause.PID == 0 || sb.Pause.alive()) {
		if sb.HostIPC || isMount(filepath.Join(dir, "shm")) {
			return nil
		}
		// Running containers keep their shared memory. New containers share a new one.
		return mountShm(filepath.Join(dir, "shm"))
	}
	sb.Ready = false
	s.freeAddress(sb.ID)
	return errors.Join(removeVeth(sb.ID), unmountNamespaces(dir), writeJSON(filepath.Join(dir, stateFile), sb.sandboxState))
}

// restoreNamespaces mounts the lost namespaces of a sandbox again, from a running container, and reports whether the
// sandbox now has all of them. The mounts are lost with the mount namespace of the earlier server, and by a reboot,
// after which no container runs.
func (s *server) restoreNamespaces(sb *sandbox) bool {
	alive := 0
	for _, c := range s.containers {
		if c.Sandbox == sb.ID && c.process != nil {
			alive = c.Process.PID
		}
	}
	for _, n := range sb.namespaces() {
		file := filepath.Join(s.cfg.sandboxDir(sb.ID), n.name)
		if isNamespaceMount(file) {
			continue
		}
		if alive == 0 || unix.Mount(fmt.Sprintf("/proc/%d/ns/%s", alive, n.name), file, "", unix.MS_BIND, "") != nil {
			return false
		}
	}
	return true
}

// isMount reports whether something is mounted on dir, a directory below Config.Root.
func isMount(dir string) bool {
	var here, above unix.Stat_t
	return unix.Stat(dir, &here) == nil && unix.Stat(filepath.Dir(dir), &above) == nil && here.Dev != above.Dev
}
