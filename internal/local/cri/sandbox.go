package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pb "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandboxState is the content of a sandbox's state file.
type sandboxState struct {
	ID      string
	IP      string // empty for a sandbox in the host's network
	Created int64  // Unix time in nanoseconds
	Ready   bool
	HostNet bool
	HostIPC bool
	Pause   processID // holds the PID namespace that the containers share; zero if they do not share one
}

// sandbox is the environment of a pod: its namespaces, its files and its address.
type sandbox struct {
	sandboxState
	config *pb.PodSandboxConfig
}

// state returns the sandbox's state as the CRI names it.
func (s *sandbox) state() pb.PodSandboxState {
	if s.Ready {
		return pb.PodSandboxState_SANDBOX_READY
	}
	return pb.PodSandboxState_SANDBOX_NOTREADY
}

// RunPodSandbox creates a pod's namespaces, its /dev/shm and its connection to the bridge.
func (s *server) RunPodSandbox(_ context.Context, q *pb.RunPodSandboxRequest) (*pb.RunPodSandboxResponse, error) {
	if err := refuseSandbox(q); err != nil {
		return nil, err
	}
	options := q.Config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	sb := &sandbox{config: q.Config, sandboxState: sandboxState{
		ID: newID(), Created: time.Now().UnixNano(), Ready: true,
		HostNet: options.GetNetwork() == pb.NamespaceMode_NODE, HostIPC: options.GetIpc() == pb.NamespaceMode_NODE,
	}}
	if err := s.makeSandbox(sb); err != nil {
		return nil, errors.Join(err, s.forgetSandbox(sb.ID))
	}
	s.notify(sb.ID, sb.ID, pb.ContainerEventType_CONTAINER_STARTED_EVENT)
	return &pb.RunPodSandboxResponse{PodSandboxId: sb.ID}, nil
}

// refuseSandbox returns an error if the sandbox has no metadata or the pod requires a feature that this runtime does
// not support.
func refuseSandbox(q *pb.RunPodSandboxRequest) error {
	refuse := func(format string, a ...any) error {
		return status.Errorf(codes.InvalidArgument, "the process runtime "+format, a...)
	}
	if q.Config.GetMetadata() == nil {
		return refuse("needs the metadata of the sandbox")
	}
	if q.RuntimeHandler != "" {
		return refuse("has no runtime handler %q: remove runtimeClassName from the pod", q.RuntimeHandler)
	}
	options := q.Config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	for _, p := range q.Config.PortMappings {
		// In the host's network, the host port and the container's port are the same.
		if p.HostPort != 0 && options.GetNetwork() != pb.NamespaceMode_NODE {
			return refuse("has no host ports (the pod asks for %d): use hostNetwork or a port-forward", p.HostPort)
		}
	}
	if u := options.GetUsernsOptions(); u != nil && u.Mode == pb.NamespaceMode_POD {
		return refuse("has no user namespaces: remove hostUsers: false from the pod")
	}
	for k := range q.Config.GetLinux().GetSysctls() {
		switch {
		case strings.HasPrefix(k, "net.") && options.GetNetwork() != pb.NamespaceMode_NODE:
		case isIPCSysctl(k) && options.GetIpc() != pb.NamespaceMode_NODE:
		default:
			return refuse("cannot set the sysctl %s for a pod alone: it would change the host's", k)
		}
	}
	return nil
}

// isIPCSysctl reports whether a sysctl belongs to the IPC namespace.
func isIPCSysctl(k string) bool {
	return strings.HasPrefix(k, "kernel.shm") || strings.HasPrefix(k, "kernel.msg") || k == "kernel.sem" || strings.HasPrefix(k, "fs.mqueue.")
}

// makeSandbox creates and records the sandbox. After an error, the caller removes the remaining parts.
func (s *server) makeSandbox(sb *sandbox) error {
	dir := s.cfg.sandboxDir(sb.ID)
	if err := sb.writeFiles(dir); err != nil {
		return err
	}
	if !sb.HostIPC {
		if err := mountShm(filepath.Join(dir, "shm")); err != nil {
			return err
		}
	}
	if err := makeNamespaces(dir, sb.namespaces(), sb.hostname(), sb.config.GetLinux().GetSysctls()); err != nil {
		return err
	}
	if !sb.HostNet {
		if err := s.reserveAddress(sb); err != nil {
			return err
		}
		if err := connectToBridge(s.cfg, sb.ID, sb.IP); err != nil {
			return fmt.Errorf("connecting the pod to the bridge: %w", err)
		}
	}
	if err := sb.commit(dir); err != nil {
		return err
	}
	s.mu.Lock()
	s.sandboxes[sb.ID] = sb
	s.mu.Unlock()
	return nil
}

// commit writes the state file, which makes the sandbox permanent. Before that it starts the pause process if the
// containers share a PID namespace.
func (s *sandbox) commit(dir string) error {
	if s.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid() != pb.NamespaceMode_POD {
		return writeState(dir, s.sandboxState, s.config)
	}
	id, start, err := startPause()
	if err != nil {
		return fmt.Errorf("making the pod's PID namespace: %w", err)
	}
	defer start.Close()
	s.Pause = id
	if err := writeState(dir, s.sandboxState, s.config); err != nil {
		return err
	}
	_, err = start.Write([]byte{1})
	return err
}

// writeFiles creates the sandbox's directory with the files that its containers see, and the directory of their logs.
func (s *sandbox) writeFiles(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "shm"), 0o700); err != nil {
		return err
	}
	if d := s.config.LogDirectory; d != "" {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("making the log directory: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "hostname"), []byte(s.hostname()+"\n"), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "resolv.conf"), resolvConf(s.config.DnsConfig), 0o644)
}

// mountShm mounts a pod's shared memory. Its size is the kernel's default, half of the machine's memory, because the 64
// MiB of other runtimes are too little for data loaders.
func mountShm(dir string) error {
	if err := unix.Mount("shm", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=1777"); err != nil {
		return fmt.Errorf("mounting /dev/shm: %w", err)
	}
	return nil
}

// hostname returns the host name that the containers see.
func (s *sandbox) hostname() string {
	if s.HostNet || s.config.Hostname == "" {
		if h, err := os.Hostname(); err == nil {
			return h
		}
	}
	return s.config.Hostname
}

// resolvConf formats a pod's DNS configuration as resolv.conf.
func resolvConf(dns *pb.DNSConfig) []byte {
	var b strings.Builder
	for _, a := range dns.GetServers() {
		fmt.Fprintln(&b, "nameserver", a)
	}
	if l := dns.GetSearches(); len(l) > 0 {
		fmt.Fprintln(&b, "search", strings.Join(l, " "))
	}
	if l := dns.GetOptions(); len(l) > 0 {
		fmt.Fprintln(&b, "options", strings.Join(l, " "))
	}
	return []byte(b.String())
}

// reserveAddress gives the sandbox an unused address.
func (s *server) reserveAddress(sb *sandbox) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, err := nextAddress(s.cfg.Subnet, s.last, s.addresses)
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(s.cfg.Root, "address"), []byte(a.String())); err != nil {
		return err
	}
	s.last, sb.IP, s.addresses[a] = a, a.String(), sb.ID
	return nil
}

// freeAddress releases the sandbox's address. The caller holds mu.
func (s *server) freeAddress(id string) {
	for a, owner := range s.addresses {
		if owner == id {
			delete(s.addresses, a)
		}
	}
}

// forgetSandbox removes a sandbox from memory and disk. It succeeds if parts of the sandbox are missing.
func (s *server) forgetSandbox(id string) error {
	s.mu.Lock()
	delete(s.sandboxes, id)
	s.freeAddress(id)
	s.mu.Unlock()
	return removeSandboxFiles(s.cfg, id)
}

// removeSandboxFiles removes a sandbox's network device, mounts and directory.
func removeSandboxFiles(cfg Config, id string) error {
	dir := cfg.sandboxDir(id)
	return errors.Join(removeVeth(id), unmountNamespaces(dir), removeAll(dir))
}

// StopPodSandbox kills the sandbox's containers and releases its namespaces and address.
func (s *server) StopPodSandbox(ctx context.Context, q *pb.StopPodSandboxRequest) (*pb.StopPodSandboxResponse, error) {
	for _, c := range s.containersOf(q.PodSandboxId) {
		if err := s.stop(ctx, c, 0); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	sb := s.sandboxes[q.PodSandboxId]
	ready := sb != nil && sb.Ready
	s.mu.Unlock()
	if !ready {
		return &pb.StopPodSandboxResponse{}, nil
	}
	if err := s.stopPause(ctx, sb); err != nil {
		return nil, err
	}
	if err := errors.Join(removeVeth(sb.ID), unmountNamespaces(s.cfg.sandboxDir(sb.ID))); err != nil {
		return nil, fmt.Errorf("stopping sandbox %s: %w", sb.ID, err)
	}
	s.mu.Lock()
	sb.Ready = false
	s.freeAddress(sb.ID)
	err := writeJSON(filepath.Join(s.cfg.sandboxDir(sb.ID), stateFile), sb.sandboxState)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	s.notify(sb.ID, sb.ID, pb.ContainerEventType_CONTAINER_STOPPED_EVENT)
	return &pb.StopPodSandboxResponse{}, nil
}

// RemovePodSandbox stops the sandbox and removes it with its containers.
func (s *server) RemovePodSandbox(ctx context.Context, q *pb.RemovePodSandboxRequest) (*pb.RemovePodSandboxResponse, error) {
	if _, err := s.StopPodSandbox(ctx, &pb.StopPodSandboxRequest{PodSandboxId: q.PodSandboxId}); err != nil {
		return nil, err
	}
	for _, c := range s.containersOf(q.PodSandboxId) {
		if err := s.remove(ctx, c); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	known := s.sandboxes[q.PodSandboxId] != nil
	s.mu.Unlock()
	if !known { // without this check, an ID such as ../x would delete another directory
		return &pb.RemovePodSandboxResponse{}, nil
	}
	if err := s.forgetSandbox(q.PodSandboxId); err != nil {
		return nil, fmt.Errorf("removing sandbox %s: %w", q.PodSandboxId, err)
	}
	s.notify(q.PodSandboxId, q.PodSandboxId, pb.ContainerEventType_CONTAINER_DELETED_EVENT)
	return &pb.RemovePodSandboxResponse{}, nil
}
