package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/testenv"
)

// embedded returns the workload that measures the embedded cluster through its command line: first in an empty
// directory, then with the data of the first run. It requires a machine that can run pods, and examples/hello below the
// working directory.
func embedded() workload {
	empty, again := &system{name: "empty", title: "empty directory"}, &system{name: "again", title: "its data there"}
	return workload{
		name: "embedded", title: "the embedded cluster: start, examples/hello, then 60 s with nothing to do", optional: true,
		columns: []*system{empty, again},
		together: func(ctx context.Context, s *settings, add func(*system, *result)) error {
			if err := local.CheckPodSupport(); err != nil {
				return err
			}
			c, err := newOwnCluster(s)
			if err != nil {
				return err
			}
			defer c.remove()
			for _, sys := range []*system{empty, again} {
				r, err := c.measure(ctx)
				if err != nil {
					return err
				}
				add(sys, r)
			}
			return nil
		},
		targets: []target{
			{of: "again", figure: "ready", value: 6}, {of: "again", figure: "hello", value: 5},
			{of: "again", figure: "idle", value: 5}, {of: "again", figure: "rss_all", value: 900},
		},
	}
}

// ownCluster is an embedded cluster in a separate state directory.
type ownCluster struct {
	state      string // its XDG_STATE_HOME
	t9k, local string // the programs
}

func newOwnCluster(s *settings) (*ownCluster, error) {
	binary, err := testenv.Binary()
	if err != nil {
		return nil, err
	}
	state, err := os.MkdirTemp("", "t9k-perf-")
	if err != nil {
		return nil, err
	}
	return &ownCluster{state: state, t9k: filepath.Join(filepath.Dir(s.operator), "t9k"), local: binary}, nil
}

// measure starts the cluster, runs and deletes examples/hello, measures the idle cluster, and stops the cluster.
func (c *ownCluster) measure(ctx context.Context) (*result, error) {
	r := &result{Figures: map[string]float64{}}
	for _, step := range []struct {
		figure, program string
		args            []string
	}{
		{"ready", c.local, []string{"up"}},
		{"hello", c.t9k, []string{"--local", "run", "-f", "examples/hello/job.yaml"}},
		{"", c.t9k, []string{"--local", "delete", "hello"}},
	} {
		began := time.Now()
		if err := c.command(ctx, step.program, step.args...); err != nil {
			return nil, err
		}
		if step.figure != "" {
			r.Figures[step.figure] = time.Since(began).Seconds()
		}
	}
	if err := c.rest(ctx, r); err != nil {
		return nil, err
	}
	return r, c.command(ctx, c.local, "down")
}

// rest lets the cluster settle for 30 s, then measures the idle cluster for 60 s and records its CPU and memory.
func (c *ownCluster) rest(ctx context.Context, r *result) error {
	const settling, span = 30 * time.Second, 60 * time.Second
	if err := sleep(ctx, settling); err != nil {
		return err
	}
	before, err := c.processes()
	if err != nil {
		return err
	}
	if err := sleep(ctx, span); err != nil {
		return err
	}
	after, err := c.processes()
	if err != nil {
		return err
	}
	r.Figures["idle"] = 100 * (after.cpu - before.cpu).Seconds() / span.Seconds()
	r.Figures["rss_all"], r.Figures["pss_all"] = after.rss, after.pss
	return nil
}

func (c *ownCluster) command(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+c.state)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(program), strings.Join(args, " "), err, out)
	}
	return nil
}

// remove deletes the cluster, running or not.
func (c *ownCluster) remove() {
	if err := c.command(context.Background(), c.local, "reset"); err != nil {
		fmt.Fprintln(os.Stderr, "perf:", err)
	}
	_ = os.RemoveAll(c.state) // what remains is in the directory for temporary files
}

// usage is the processor time that a set of processes has used so far, and their memory in MiB. A page that several
// processes share counts once for each of them in rss, and only once in pss.
type usage struct {
	cpu      time.Duration
	rss, pss float64
}

// processes returns the total usage of the processes that have the state directory on their command line, which are all
// processes of the cluster.
func (c *ownCluster) processes() (usage, error) {
	var all usage
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return all, err
	}
	for _, line := range lines {
		text, err := os.ReadFile(line)
		if err != nil || !bytes.Contains(text, []byte(c.state)) {
			continue // the process has ended or does not belong to the cluster
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(line)))
		if err != nil {
			return all, err
		}
		cpu, err := cpuOf(pid)
		if err != nil {
			return all, err
		}
		memory, err := fields(filepath.Join(filepath.Dir(line), "smaps_rollup"))
		if err != nil {
			return all, err
		}
		all.cpu += cpu
		all.rss += memory["Rss"]
		all.pss += memory["Pss"]
	}
	return all, nil
}
