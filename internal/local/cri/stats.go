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

// tick is the unit of CPU times in /proc. The kernel reports hundredths of a second to programs on every supported
// architecture.
const tick = 10 * time.Millisecond

// stats adds up the CPU time and memory of the container's processes, because the container has no cgroup. It does not
// measure the container's layer.
func (c *container) stats() *pb.ContainerStats {
	now := time.Now().UnixNano()
	var cpu, resident, shared uint64
	for i, dir := range c.processes() {
		f, err := statFields(filepath.Join(dir, "stat"))
		if err != nil {
			continue // the process has exited in the meantime
		}
		for _, ticks := range f[statUTime : statUTime+4] {
			cpu += parseCount(ticks) * uint64(tick)
		}
		if i == 0 { // the shim's memory is mostly pages of this program's file
			continue
		}
		if b, err := os.ReadFile(filepath.Join(dir, "statm")); err == nil {
			if f := strings.Fields(string(b)); len(f) > 2 {
				resident, shared = resident+parseCount(f[1]), shared+parseCount(f[2])
			}
		}
	}
	page := uint64(os.Getpagesize())
	return &pb.ContainerStats{
		Attributes: &pb.ContainerAttributes{
			Id: c.ID, Metadata: c.config.Metadata, Labels: c.config.Labels, Annotations: c.config.Annotations,
		},
		Cpu: &pb.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: &pb.UInt64Value{Value: cpu}},
		Memory: &pb.MemoryUsage{
			Timestamp: now, WorkingSetBytes: &pb.UInt64Value{Value: resident * page},
			RssBytes: &pb.UInt64Value{Value: (resident - min(shared, resident)) * page},
		},
	}
}

// parseCount parses a decimal number that the kernel wrote.
func parseCount(s string) uint64 {
	n, _ := strconv.ParseUint(s, 10, 64)
	return n
}

// processes lists the /proc directories of the container's processes, the shim first. They are all processes of the
// container's own PID namespace or, if it has none, the shim and its descendants.
func (c *container) processes() []string {
	shim := fmt.Sprintf("/proc/%d", c.Process.PID)
	own := c.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid() == pb.NamespaceMode_CONTAINER
	// /proc/self does not resolve here if the container's /proc belongs to another PID namespace.
	if _, err := os.Readlink(shim + "/root/proc/self"); own && err != nil {
		dirs := []string{shim}
		inside, _ := filepath.Glob(shim + "/root/proc/[0-9]*") // the pattern is valid
		for _, d := range inside {
			if filepath.Base(d) != "1" {
				dirs = append(dirs, d)
			}
		}
		return dirs
	}
	var dirs []string
	for todo := []string{shim}; len(todo) > 0; todo = todo[1:] {
		dirs = append(dirs, todo[0])
		tasks, _ := filepath.Glob(todo[0] + "/task/[0-9]*/children")
		for _, t := range tasks {
			b, _ := os.ReadFile(t)
			for pid := range strings.FieldsSeq(string(b)) {
				todo = append(todo, "/proc/"+pid)
			}
		}
	}
	return dirs
}

// ContainerStats measures a running container.
func (s *server) ContainerStats(_ context.Context, q *pb.ContainerStatsRequest) (*pb.ContainerStatsResponse, error) {
	c, _, err := s.running(q.ContainerId)
	if err != nil {
		return nil, err
	}
	return &pb.ContainerStatsResponse{Stats: c.stats()}, nil
}

// ListContainerStats measures the running containers that match the filter.
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
