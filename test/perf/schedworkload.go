package main

import (
	"context"
	"fmt"
)

// schedWorkloads measure the t9k-scheduler beside kube-scheduler.
var schedWorkloads = []workload{
	rates("sched-500", 500),
	rates("sched-5000", 5000),
}

// rates has 5,000 pods scheduled by kube-scheduler one by one, and by ours one by one and in gangs.
func rates(name string, nodes int) workload {
	all := []*contender{upstream(1), singles(), gangs(8), gangs(64)}
	w := workload{name: name, title: fmt.Sprintf("5,000 pods on %d nodes", nodes), optional: true, columns: columns(all)}
	w.together = func(ctx context.Context, s *settings, add func(*system, *result)) error {
		st, err := startStage(ctx, s, nodes)
		if err != nil {
			return err
		}
		defer st.stop()
		for _, c := range all {
			r, err := st.throughput(c.groups(c.name, s.pods, "100m"))
			if err != nil {
				return st.explain(fmt.Errorf("%s: %w", c.title, err))
			}
			add(&c.system, r)
		}
		return nil
	}
	for _, c := range all[2:] {
		w.targets = append(w.targets, target{of: c.name, figure: "pods_per_s", against: "default", factor: 0.9, least: true})
	}
	return w
}
