package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// workload is a measurement to run.
type workload struct {
	name, title string
	// optional workloads run only when -run selects them.
	optional bool
	// systems are the names of the systems to measure; nil: all.
	systems []string
	run     func(*session) error
	// together measures all columns in one run. It replaces run, and columns replaces systems.
	together func(ctx context.Context, s *settings, add func(*system, *result)) error
	columns  []*system
	// targets are the bounds of figures of this repository's programs.
	targets []target
}

// on returns the systems among names that the workload measures. A workload that measures all columns together always
// has all its columns.
func (w *workload) on(names []string) []*system {
	if w.together != nil {
		return w.columns
	}
	var all []*system
	for _, s := range systems {
		if slices.Contains(names, s.name) && (w.systems == nil || slices.Contains(w.systems, s.name)) {
			all = append(all, s)
		}
	}
	return all
}

func (w *workload) timeout() time.Duration {
	if w.optional || w.together != nil {
		return 15 * time.Minute
	}
	return 4 * time.Minute
}

var workloads = []workload{
	burst("many", 200, 4),
	burst("large", 1, 2000),
	burst("small", 1000, 1),
	{
		name: "serial", title: "100 jobs × 4 replicas, one at a time", run: serial,
		targets: []target{
			{figure: "start_p50", against: "floor", factor: 1.4}, {figure: "start_p99", against: "floor", factor: 1.6},
			{figure: "start_p50", against: "job", factor: 1}, {figure: "lag_p99", value: 0.3},
		},
	},
	{
		name: "recovery", title: "200 of the 1,000 pods of a job deleted", run: recovery, systems: []string{"floor", "ours"},
		targets: []target{{figure: "recovery", against: "floor", factor: 1.5}},
	},
	{
		name: "idle", title: "200 jobs × 4 replicas running for 60 s", optional: true, run: idle, systems: []string{"job", "ours"},
		targets: []target{{figure: "cpu", value: 0.1}, {figure: "writes", value: 0}},
	},
	{
		name: "memory", title: "1,000 jobs × 10 replicas running", optional: true, run: memory, systems: []string{"job", "ours"},
		targets: []target{{figure: "rss", value: 200}},
	},
	{
		name: "largest", title: "the largest job: 10,000 replicas of 26 KiB, then 500 of 500 KiB", optional: true, run: largest, systems: []string{"ours"},
		targets: []target{{figure: "rss_peak", value: 256}, {figure: "rss_peak_again", value: 256}},
	},
	{
		name: "growth-pods", title: "jobs × 4 replicas: 100, 1,000, 5,000, 20,000 pods", optional: true, systems: []string{"ours"},
		run:     growth([]shape{{25, 4}, {250, 4}, {1250, 4}, {5000, 4}}),
		targets: []target{{figure: "cpu_growth", value: 1.2}, {figure: "requests_growth", value: 1.2}},
	},
	{
		name: "growth-size", title: "about 5,000 pods in jobs of 1, 10, 100, 1,000, 5,000 replicas", optional: true, systems: []string{"ours"},
		run:     growth([]shape{{5000, 1}, {500, 10}, {50, 100}, {5, 1000}, {1, 5000}}),
		targets: []target{{figure: "cpu_growth", value: 1.2}, {figure: "requests_growth", value: 1.2}},
	},
}

// burst returns a workload that submits all jobs at once, waits until all their pods run, ends all pods, and waits
// until all jobs report success.
func burst(name string, jobs, replicas int) workload {
	return workload{
		name: name, title: fmt.Sprintf("%d jobs × %d replicas", jobs, replicas),
		run: func(s *session) error {
			if err := s.cost(func() error { return s.lifecycle("j", jobs, replicas) }); err != nil {
				return err
			}
			s.set("requests_per_job", s.result.Figures["requests"]/float64(jobs))
			return nil
		},
		targets: []target{
			{figure: "running", against: "floor", factor: 1.25}, {figure: "running", against: "job", factor: 1},
			{figure: "cpu", against: "job", factor: 1}, {figure: "requests_per_job", value: float64(replicas + 8)},
			{figure: "say_p99", value: 1.5}, {figure: "say_p99", against: "job", factor: 1},
			{figure: "lag_p99", value: 1.5},
		},
	}
}

func names(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return all
}

// lifecycle runs jobs from their creation to their end, and records the times of their starts and ends. For a system
// without jobs, it returns when all pods run.
func (s *session) lifecycle(prefix string, jobs, replicas int) error {
	began := time.Now()
	if err := s.submit(replicas, names(prefix, jobs)...); err != nil {
		return err
	}
	if err := s.awaitStarted(jobs * replicas); err != nil {
		return err
	}
	s.set("running", s.seen.lastStart().Sub(began).Seconds())
	if s.sys.jobs == nil {
		return nil
	}
	if err := s.awaitJobsRunning(jobs); err != nil {
		return err
	}
	starts := s.seen.startLags()
	s.set("say_p50", quantile(starts, 50).Seconds())
	s.set("say_p99", quantile(starts, 99).Seconds())
	if err := s.endPods(s.seen.live()); err != nil {
		return err
	}
	if err := s.awaitFinished(jobs); err != nil {
		return err
	}
	lags := s.seen.endLags()
	s.set("lag_p50", quantile(lags, 50).Seconds())
	s.set("lag_p99", quantile(lags, 99).Seconds())
	return s.quiet()
}

// serial runs jobs one after the other, each from its creation to its end, in a cluster without other load.
func serial(s *session) error {
	const jobs, replicas = 100, 4
	var starts, lags []time.Duration
	for _, name := range names("j", jobs) {
		s.seen.reset()
		began := time.Now()
		if err := s.submit(replicas, name); err != nil {
			return err
		}
		if err := s.awaitStarted(replicas); err != nil {
			return err
		}
		starts = append(starts, s.seen.lastStart().Sub(began))
		if err := s.endPods(s.seen.live()); err != nil {
			return err
		}
		if err := s.awaitFinished(1); err != nil {
			return err
		}
		lags = append(lags, s.seen.endLags()...)
		if err := sleep(s.ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	s.set("start_p50", 1000*quantile(starts, 50).Seconds())
	s.set("start_p99", 1000*quantile(starts, 99).Seconds())
	if s.sys.jobs != nil {
		s.set("lag_p99", quantile(lags, 99).Seconds())
	}
	return nil
}

// recovery deletes a fifth of the pods of a large job and waits until all replicas run again. The floor only creates as
// many new pods.
func recovery(s *session) error {
	const replicas, lost = 1000, 200
	if err := s.submit(replicas, "j0"); err != nil {
		return err
	}
	if err := s.awaitStarted(replicas); err != nil {
		return err
	}
	if err := s.quiet(); err != nil {
		return err
	}
	return s.cost(func() error {
		began := time.Now()
		if s.sys.jobs == nil {
			if err := s.submit(lost, "replacement"); err != nil {
				return err
			}
		} else if err := s.deletePods(s.seen.live()[:lost]); err != nil {
			return err
		}
		if err := s.awaitStarted(replicas + lost); err != nil {
			return err
		}
		s.set("recovery", s.seen.lastStart().Sub(began).Seconds())
		return nil
	})
}

func idle(s *session) error {
	const jobs, replicas = 200, 4
	if err := s.submit(replicas, names("j", jobs)...); err != nil {
		return err
	}
	if err := s.awaitStarted(jobs * replicas); err != nil {
		return err
	}
	if err := s.quiet(); err != nil {
		return err
	}
	if err := s.cost(func() error { return sleep(s.ctx, time.Minute) }); err != nil {
		return err
	}
	writes := 0
	for sort, n := range s.result.Requests {
		if !isRead(sort) {
			writes += n
		}
	}
	s.set("writes", float64(writes))
	return nil
}

func memory(s *session) error {
	const jobs, replicas = 1000, 10
	if err := s.submit(replicas, names("j", jobs)...); err != nil {
		return err
	}
	if err := s.awaitStarted(jobs * replicas); err != nil {
		return err
	}
	if err := s.quiet(); err != nil {
		return err
	}
	return s.memory()
}

// largest creates the largest jobs that admission accepts, and restarts the operator while their pods exist. No
// scheduler binds the pods, because the workload measures only the operator's memory.
func largest(s *session) error {
	texts := genericJob("texts", 10_000)[0].(*batch.GenericJob)
	spec := &texts.Spec.ReplicaSpecs[0].Template.Spec
	spec.SchedulerName = "none"
	spec.Containers[0].Args = []string{strings.Repeat("$(type)", 3_300)}
	entries := genericJob("entries", 500)[0].(*batch.GenericJob)
	spec = &entries.Spec.ReplicaSpecs[0].Template.Spec
	spec.SchedulerName = "none"
	for i := range 10_000 {
		spec.Containers[0].Env = append(spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("V%d", i)})
	}
	pods := 0
	for _, job := range []*batch.GenericJob{texts, entries} {
		if err := s.client.Create(s.ctx, job); err != nil {
			return err
		}
		pods += int(*job.Spec.ReplicaSpecs[0].Replicas)
		if err := s.seen.await(s.ctx, "all pods exist", func(n counts) bool { return n.created >= pods }); err != nil {
			return err
		}
		if err := s.quiet(); err != nil {
			return err
		}
	}
	if err := s.memory(); err != nil {
		return err
	}
	if err := s.restartController(); err != nil {
		return err
	}
	if err := s.deletePods([]string{"texts-worker-0"}); err != nil {
		return err
	}
	if err := s.seen.await(s.ctx, "the restarted operator creates pods", func(n counts) bool { return n.created > pods }); err != nil {
		return err
	}
	_, peak, err := s.controller.memory()
	s.set("rss_peak_again", peak)
	return err
}

// shape is a number of jobs with a number of replicas each.
type shape struct{ jobs, replicas int }

// growth returns a measurement that runs the jobs of each shape. It records the ratio of the highest cost per pod to
// the cost per pod of the first shape.
func growth(shapes []shape) func(*session) error {
	return func(s *session) error {
		var cpu, requests []float64
		for i, shape := range shapes {
			s.seen.reset()
			if err := s.cost(func() error { return s.lifecycle(fmt.Sprintf("g%d-", i), shape.jobs, shape.replicas) }); err != nil {
				return err
			}
			pods := float64(shape.jobs * shape.replicas)
			cpu = append(cpu, 1000*s.result.Figures["cpu"]/pods)
			requests = append(requests, s.result.Figures["requests"]/pods)
			s.set(fmt.Sprintf("cpu_per_pod %d×%d", shape.jobs, shape.replicas), cpu[i])
			s.set(fmt.Sprintf("requests_per_pod %d×%d", shape.jobs, shape.replicas), requests[i])
		}
		s.set("cpu_growth", slices.Max(cpu)/cpu[0])
		s.set("requests_growth", slices.Max(requests)/requests[0])
		return nil
	}
}

// quantile returns the value below which the given percentage of all values lie; 0 if there are none. It sorts all.
func quantile(all []time.Duration, percent int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(len(all)-1, len(all)*percent/100)]
}
