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
	var cpu, resident, shared uint64
	for i, dir := range c.processes() {
		f, err := statFields(filepath.Join(dir, "stat"))
		if err != nil {
			continue // it ended in the meantime
		}
		for _, ticks := range f[statUTime : statUTime+4] {
			cpu += number(ticks) * uint64(tick)
		}
		if i == 0 { // the shim: mostly this program's own file
			continue
		}
		if b, err := os.ReadFile(filepath.Join(dir, "statm")); err == nil {
			if f := strings.Fields(string(b)); len(f) > 2 {
				resident, shared = resident+number(f[1]), shared+number(f[2])
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

func number(s string) uint64 {
	n, _ := strconv.ParseUint(s, 10, 64) // the kernel writes nothing else
	return n
}

// processes lists the /proc directories of the container's processes, the shim first: all of its PID namespace, as
// its own /proc shows them, or the shim's descendants where it has no such namespace.
func (c *container) processes() []string {
	shim := fmt.Sprintf("/proc/%d", c.Process.PID)
	own := c.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid() == pb.NamespaceMode_CONTAINER
	if _, err := os.Readlink(shim + "/root/proc/self"); own && err != nil { // it does not show this process
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
