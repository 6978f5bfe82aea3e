package cri

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	pb "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// tick is the unit of CPU times in /proc: the kernel shows them to programs in hundredths of a second everywhere.
const tick = 10 * time.Millisecond

// stats measures the container's processes one by one, since it has no cgroup of its own. Its layer is not measured.
func (c *container) stats() *pb.ContainerStats {
	now := time.Now().UnixNano()
	out := &pb.ContainerStats{Attributes: &pb.ContainerAttributes{
		Id: c.ID, Metadata: c.config.Metadata, Labels: c.config.Labels, Annotations: c.config.Annotations,
	}}
	var cpu, memory uint64
	for _, pid := range c.processes() {
		f, err := statFields(pid)
		if err != nil {
			continue // it ended in the meantime
		}
		for i := statUTime; i < statUTime+4; i++ {
			n, _ := strconv.ParseUint(f[i], 10, 64)
			cpu += n * uint64(tick)
		}
		n, _ := strconv.ParseUint(f[statRSS], 10, 64)
		memory += n * uint64(os.Getpagesize())
	}
	out.Cpu = &pb.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: &pb.UInt64Value{Value: cpu}}
	out.Memory = &pb.MemoryUsage{Timestamp: now, WorkingSetBytes: &pb.UInt64Value{Value: memory}, RssBytes: &pb.UInt64Value{Value: memory}}
	return out
}

// processes lists the stat files of the container's processes: all of its PID namespace, as its own /proc shows
// them, or the shim's descendants where it has no such namespace.
func (c *container) processes() (files []string) {
	pid := c.Process.PID
	if own := c.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid() == pb.NamespaceMode_CONTAINER; own {
		files, _ = filepath.Glob(fmt.Sprintf("/proc/%d/root/proc/[0-9]*/stat", pid)) // the pattern is valid
		return files
	}
	for todo := []int{pid}; len(todo) > 0; todo = todo[1:] {
		files = append(files, fmt.Sprintf("/proc/%d/stat", todo[0]))
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*/children", todo[0]))
		for _, t := range tasks {
			b, _ := os.ReadFile(t)
			for _, f := range strings.Fields(string(b)) {
				if n, err := strconv.Atoi(f); err == nil {
					todo = append(todo, n)
				}
			}
		}
	}
	return files
}

// ContainerStats measures a container that runs.
func (s *server) ContainerStats(_ context.Context, q *pb.ContainerStatsRequest) (*pb.ContainerStatsResponse, error) {
	c, _, err := s.running(q.ContainerId)
	if err != nil {
		return nil, err
	}
	return &pb.ContainerStatsResponse{Stats: c.stats()}, nil
}

// ListContainerStats measures the containers that run and that the filter lets through.
func (s *server) ListContainerStats(_ context.Context, q *pb.ListContainerStatsRequest) (*pb.ListContainerStatsResponse, error) {
	f := &pb.ContainerFilter{
		Id: q.GetFilter().GetId(), PodSandboxId: q.GetFilter().GetPodSandboxId(), LabelSelector: q.GetFilter().GetLabelSelector(),
		State: &pb.ContainerStateValue{State: pb.ContainerState_CONTAINER_RUNNING},
	}
	s.mu.Lock()
	list := s.selected(f)
	s.mu.Unlock()
	out := &pb.ListContainerStatsResponse{}
	for _, c := range list {
		out.Stats = append(out.Stats, c.stats())
	}
	return out, nil
}
