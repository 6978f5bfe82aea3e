package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// schedWorkloads measure t9k-scheduler, and some of them also kube-scheduler for comparison.
var schedWorkloads = []workload{
	rates("sched-500", 500),
	rates("sched-5000", 5000),
	creations(),
	latencies(),
	unfit(),
	preemption(),
}

// onStage returns a workload that measures its contenders, one after the other, on one API server with this number of
// nodes.
func onStage(name, title string, nodes int, all []*contender, measure func(*stage, *contender) (*result, error), targets ...target) workload {
	w := workload{name: name, title: title, optional: true, columns: columns(all), targets: targets}
	w.together = func(ctx context.Context, s *settings, add func(*system, *result)) error {
		st, err := startStage(ctx, s, nodes)
		if err != nil {
			return err
		}
		defer st.stop()
		for _, c := range all {
			r, err := measure(st, c)
			if err != nil {
				return st.explain(fmt.Errorf("%s: %w", c.title, err))
			}
			add(&c.system, r)
		}
		return nil
	}
	return w
}

// rates returns a workload that measures the throughput of kube-scheduler with single pods, and of t9k-scheduler with
// single pods and gangs.
func rates(name string, nodes int) workload {
	var targets []target
	for _, c := range []string{"gangs8", "gangs64"} {
		targets = append(targets, target{of: c, figure: "pods_per_s", against: "default", factor: 0.9, least: true})
	}
	return onStage(name, fmt.Sprintf("all pods at once on %d nodes", nodes), nodes, []*contender{upstream(1), singles(), gangs(8), gangs(64)},
		func(st *stage, c *contender) (*result, error) {
			return st.throughput(c.groups(c.name, st.settings.pods, "100m"))
		}, targets...)
}

// creations returns a workload that measures the creation of pods while no scheduler runs. The cluster has 20
// additional queues, because admission evaluates a policy for each queue if a pod names one.
func creations() workload {
	const queues = 20
	plain, ofJobs, gang, single, labelled := upstream(1), gangs(8), gangs(8), singles(), singles()
	plain.title = "plain pods"
	ofJobs.name, ofJobs.title, ofJobs.ofJobs = "jobs", "pods of jobs", true
	labelled.name, labelled.title, labelled.labelled = "labelled", "t9k, single pods that name their queue", true
	return onStage("sched-create", "creation of pods, as admission lets them pass", 50, []*contender{plain, ofJobs, gang, single, labelled},
		func(st *stage, c *contender) (*result, error) {
			if err := parallel(st.ctx, names("other-", queues), st.ensureQueue); err != nil {
				return nil, err
			}
			// The first pods of each kind take longer, because the API server compiles policies and fills caches.
			if _, err := st.creation(c.groups(c.name+"-first", 400, "100m")); err != nil {
				return nil, err
			}
			return st.creation(c.groups(c.name, st.settings.pods, "100m"))
		}, target{of: "jobs", figure: "created_per_s", against: "default", factor: 0.85, least: true})
}

// latencies returns a workload that measures how long groups wait if they arrive one after the other, at 80 pods per
// second in all.
func latencies() workload {
	return onStage("sched-latency", "groups that come one after the other, 80 pods/s, on 500 nodes", 500, []*contender{upstream(8), gangs(8), gangs(64)},
		func(st *stage, c *contender) (*result, error) {
			r := &result{Figures: map[string]float64{}}
			g := c.groups(c.name, 1280, "100m")
			return r, st.running(c, r, g.pods(), func(ctx context.Context) error { return st.arrivals(ctx, g, r) })
		})
}

// arrivals submits groups at a constant rate and records how long they wait. It deletes the pods of each group when 160
// later pods have been submitted.
func (st *stage) arrivals(ctx context.Context, g *groups, r *result) error {
	const perSecond, stay = 80, 160 // in pods
	st.seen.reset()
	next := time.NewTicker(time.Second * time.Duration(g.size) / perSecond)
	defer next.Stop()
	submitted := make(chan error, len(g.names))
	for i, name := range g.names {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-next.C:
		}
		go func() {
			one := *g
			one.names = []string{name}
			submitted <- st.submit(&one)
		}()
		if gone := i - stay/g.size; gone >= 0 {
			if err := st.client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace), client.MatchingLabels{jobLabel: g.names[gone]}); err != nil {
				return err
			}
		}
	}
	for range g.names {
		if err := <-submitted; err != nil {
			return err
		}
	}
	if err := st.seen.awaitBound(ctx, g.pods()); err != nil {
		return err
	}
	waits := st.seen.waits()
	r.Figures["wait_p50"] = 1000 * quantile(waits, 50).Seconds()
	r.Figures["wait_p99"] = 1000 * quantile(waits, 99).Seconds()
	return st.clear(g.run)
}

// unfit returns a workload that measures the scheduling of gangs, first alone and then beside 1,000 groups that do not
// fit.
func unfit() workload {
	alone, beside := gangs(8), gangs(8)
	alone.name, alone.title = "alone", "gangs of 8"
	beside.name, beside.title = "beside", "… beside 1,000 unfit groups"
	return onStage("sched-unfit", "1,000 groups that do not fit, on 500 nodes", 500, []*contender{alone, beside},
		func(st *stage, c *contender) (*result, error) {
			r := &result{Figures: map[string]float64{}}
			if c == beside {
				if err := st.addUnfit(r); err != nil {
					return nil, err
				}
			}
			g := c.groups(c.name+"-come", 800, "100m")
			if err := st.running(c, r, g.pods(), func(ctx context.Context) error { return st.arrivals(ctx, g, r) }); err != nil {
				return nil, err
			}
			r.Figures["cpu_per_1000 one after the other"] = r.Figures["cpu_per_1000"]
			all, err := st.throughput(c.groups(c.name, st.settings.pods, "100m"))
			if err != nil {
				return nil, err
			}
			for name, v := range all.Figures {
				r.Figures[name] = v
			}
			return r, nil
		},
		target{of: "beside", figure: "pods_per_s", against: "alone", factor: 0.9, least: true},
		target{of: "beside", figure: "wait_p50", against: "alone", factor: 1.1})
}

// addUnfit adds 1,000 groups of four pods that do not fit, and records the CPU that the scheduler uses to try all of
// them. In half of the groups, no pod fits a node. In the other half, the selector allows only one node, and only one
// pod of the group fits there.
func (st *stage) addUnfit(r *result) error {
	const all, sorts = 1000, 20
	c := gangs(4)
	pods := 0
	for i := range sorts {
		g := c.groups(fmt.Sprintf("large%d", i), all/sorts/2*c.size, fmt.Sprint(65+i))
		if err := st.submit(g); err != nil {
			return err
		}
		pods += g.pods()
		g = c.groups(fmt.Sprintf("tight%d", i), all/sorts/2*c.size, "40")
		g.selector = map[string]string{corev1.LabelHostname: st.nodes[i]}
		if err := st.submit(g); err != nil {
			return err
		}
		pods += g.pods()
	}
	looked := &result{Figures: map[string]float64{}}
	if err := st.running(c, looked, pods, func(context.Context) error { return nil }); err != nil {
		return err
	}
	r.Figures["look_cpu"] = looked.Figures["cpu_per_1000"] * float64(pods) / 1000
	return nil
}

// preemption returns a workload that measures how fast a gang of 64 preempts 64 of 1,000 pods. These pods fill 1,000
// nodes and belong to a queue with lower priority.
func preemption() workload {
	const nodes = 1000
	return onStage("sched-preempt", "a gang of 64 evicts 64 of 1,000 pods on 1,000 nodes", nodes, []*contender{gangs(64)},
		func(st *stage, c *contender) (*result, error) {
			r := &result{Figures: map[string]float64{}}
			queue := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "high"},
				Spec: scheduling.QueueSpec{Priority: 10, NamespaceSelector: &metav1.LabelSelector{}}}
			if err := st.client.Create(st.ctx, queue); err != nil {
				return nil, err
			}
			low := gangs(8).groups("low", nodes, "40")
			if err := st.submit(low); err != nil {
				return nil, err
			}
			high := c.groups("high", 64, "40")
			high.queue = queue.Name
			return r, st.running(c, r, high.pods()+low.pods(), func(ctx context.Context) error {
				if err := st.seen.awaitBound(ctx, low.pods()); err != nil {
					return err
				}
				if err := st.submit(high); err != nil {
					return err
				}
				if err := st.seen.awaitBound(ctx, low.pods()+high.pods()); err != nil {
					return err
				}
				r.Figures["first_evicted"] = 1000 * st.seen.untilEviction(high.names[0]).Seconds()
				return nil
			})
		}, target{of: "gangs64", figure: "first_evicted", value: 100})
}
