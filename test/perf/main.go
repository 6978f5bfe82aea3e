// Command perf measures how fast jobs start and end and what that costs, on a real API server with etcd, the default
// scheduler and nodes that KWOK simulates. Each measurement has a fresh control plane. By default, a run measures three
// systems: the floor (a program that only creates the same pods), batch/v1 Job (the controller of Kubernetes, in a
// process of its own) and this repository's operator. The workloads for schedulers, the console and the embedded
// cluster run only if -run selects them, and have their own set-up. docs/performance.md explains the results.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// settings are the values of the command line's flags.
type settings struct {
	run      *regexp.Regexp // the workloads to measure; nil for those that are not optional
	systems  []string
	nodes    int
	pods     int // in the workloads that measure schedulers
	count    int
	operator string
	out      string
	profile  string
}

func main() {
	if len(os.Args) > 1 {
		if part, ok := parts[os.Args[1]]; ok {
			os.Args = os.Args[1:]
			exit(part())
		}
	}
	s, err := parseFlags()
	if err != nil {
		exit(err)
	}
	ctrl.SetLogger(klog.Background())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	exit(bench(ctx, s))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "perf:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func parseFlags() (*settings, error) {
	s := &settings{}
	run := flag.String("run", "", "workloads to measure, a regular expression; empty: the usual ones; . : all")
	systems := flag.String("systems", "floor,job,ours", "systems to measure; also available is objects: the floor with a job object for each job, without a controller")
	list := flag.Bool("list", false, "list the workloads and exit")
	flag.IntVar(&s.nodes, "nodes", 50, "simulated nodes")
	flag.IntVar(&s.pods, "pods", 5000, "pods of the workloads of schedulers")
	flag.IntVar(&s.count, "count", 1, "measure each this often and report the medians")
	flag.StringVar(&s.operator, "operator", "bin/t9k-operator", "the operator's program")
	flag.StringVar(&s.out, "out", "bench", "directory of the result")
	flag.StringVar(&s.profile, "profile", "", "run the operator inside of this program and write its CPU and heap profiles to this directory")
	flag.Parse()
	if *list {
		for _, w := range all() {
			fmt.Printf("%-14s %s\n", w.name, w.title)
		}
		os.Exit(0)
	}
	var err error
	if *run != "" {
		if s.run, err = regexp.Compile(*run); err != nil {
			return nil, fmt.Errorf("-run: %w", err)
		}
	}
	s.systems = strings.Split(*systems, ",")
	for _, dir := range []*string{&s.operator, &s.out, &s.profile} {
		if *dir == "" {
			continue
		}
		if *dir, err = filepath.Abs(*dir); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// bench measures each selected workload on each system, one after the other. It prints a table for each workload and
// finally saves the report.
func bench(ctx context.Context, s *settings) error {
	r := newReport(s)
	for _, w := range all() {
		if s.run == nil && w.optional || s.run != nil && !s.run.MatchString(w.name) {
			continue
		}
		for range s.count {
			if w.together != nil {
				if err := measureTogether(ctx, s, w, r); err != nil {
					return fmt.Errorf("measuring %s: %w", w.name, err)
				}
				continue
			}
			for _, sys := range w.on(s.systems) {
				began := time.Now()
				result, err := measure(ctx, s, w, sys)
				if err != nil {
					return fmt.Errorf("measuring %s on %s: %w", w.name, sys.name, err)
				}
				fmt.Fprintf(os.Stderr, "  %-14s %-6s measured in %.0f s\n", w.name, sys.name, time.Since(began).Seconds())
				r.add(w, sys, result)
			}
		}
		r.print(os.Stdout, w)
	}
	return r.save(filepath.Join(s.out, "result.json"))
}

// all returns all workloads.
func all() []*workload {
	var list []*workload
	for _, some := range [][]workload{workloads, schedWorkloads, {embedded(), consoleWorkload()}} {
		for i := range some {
			list = append(list, &some[i])
		}
	}
	return list
}

// measureTogether runs a workload that measures all its columns in one run.
func measureTogether(ctx context.Context, s *settings, w *workload, r *report) error {
	ctx, cancel := context.WithTimeout(ctx, w.timeout())
	defer cancel()
	began := time.Now()
	return w.together(ctx, s, func(sys *system, result *result) {
		fmt.Fprintf(os.Stderr, "  %-14s %-8s measured in %.0f s\n", w.name, sys.name, time.Since(began).Seconds())
		r.add(w, sys, result)
		began = time.Now()
	})
}

// measure runs one workload on one system, on a fresh control plane.
func measure(ctx context.Context, s *settings, w *workload, sys *system) (*result, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout())
	defer cancel()
	p, err := startPlane(ctx, s, sys)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	run, err := newSession(p, sys)
	if err != nil {
		return nil, err
	}
	if err := run.warmUp(); err != nil {
		return nil, fmt.Errorf("warming up: %w", err)
	}
	if err := w.run(run); err != nil {
		return nil, p.explain(err)
	}
	return &run.result, nil
}
