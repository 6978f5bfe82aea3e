package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/testing/audit"
)

// runLabel distinguishes the objects of one measurement from those of others on the same stage.
const runLabel = "perf.tensorstack.dev/run"

// contender is a scheduler with pods in groups of one size. It is a column of the report.
type contender struct {
	system
	// part is the key of the scheduler in parts.
	part string
	// scheduler is the schedulerName of its pods.
	scheduler string
	// size is the number of pods in a group. A group of one pod has no PodGroup.
	size int
	// gang adds a PodGroup to each group, so that its pods start together.
	gang bool
	// ofJobs labels the pods as created by the operator.
	ofJobs bool
	// labelled names the queue in a label of each pod.
	labelled bool
}

func upstream(size int) *contender {
	return &contender{system: system{name: "default", title: "kube-scheduler"}, part: "kube-scheduler", scheduler: corev1.DefaultSchedulerName, size: size}
}

func gangs(size int) *contender {
	return &contender{system: system{name: fmt.Sprintf("gangs%d", size), title: fmt.Sprintf("gangs of %d", size)}, part: "t9k-scheduler",
		scheduler: scheduling.SchedulerName, size: size, gang: true}
}

func singles() *contender {
	return &contender{system: system{name: "singles", title: "t9k, single pods"}, part: "t9k-scheduler", scheduler: scheduling.SchedulerName, size: 1}
}

func columns(all []*contender) []*system {
	var systems []*system
	for _, c := range all {
		systems = append(systems, &c.system)
	}
	return systems
}

// groups describes the groups of pods that one measurement creates for a contender: their names, their queue, and the
// CPU request and node selector of each pod. run is the value of their label runLabel.
type groups struct {
	*contender
	run   string
	names []string
	cpu   string
	queue string
	// selector is the node selector of the pods.
	selector map[string]string
}

func (c *contender) groups(run string, pods int, cpu string) *groups {
	return &groups{contender: c, run: run, names: names(run+"-", pods/c.size), cpu: cpu, queue: scheduling.DefaultQueue}
}

func (g *groups) pods() int { return len(g.names) * g.size }

// submit creates all groups first and then all pods.
func (st *stage) submit(g *groups) error {
	if err := parallel(st.ctx, g.names, func(name string) error { return st.submitGroup(g, name) }); err != nil {
		return err
	}
	return st.createPods(g)
}

func (st *stage) createPods(g *groups) error {
	var all []*corev1.Pod
	for _, name := range g.names {
		all = append(all, g.podsOf(name)...)
	}
	return parallel(st.ctx, all, func(pod *corev1.Pod) error { return st.client.Create(st.ctx, pod) })
}

func (st *stage) submitGroup(g *groups, name string) error {
	if !g.gang {
		return nil
	}
	return st.client.Create(st.ctx, &scheduling.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{runLabel: g.run}},
		Spec:       scheduling.PodGroupSpec{MinMember: int32(g.size), Queue: g.queue},
	})
}

func (g *groups) podsOf(name string) []*corev1.Pod {
	labels := map[string]string{runLabel: g.run, jobLabel: name}
	if g.gang {
		labels[scheduling.LabelGroupName] = name
	}
	if g.ofJobs {
		labels[batch.LabelJobName] = name
	}
	if g.labelled {
		labels[scheduling.LabelQueue] = g.queue
	}
	var all []*corev1.Pod
	for i := range g.size {
		all = append(all, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%d", name, i), Labels: labels},
			Spec: corev1.PodSpec{SchedulerName: g.scheduler, NodeSelector: g.selector, TerminationGracePeriodSeconds: new(int64), Containers: []corev1.Container{{Name: "main", Image: "none",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(g.cpu)}}}}},
		})
	}
	return all
}

// throughput measures a contender that starts when all pods exist. The measured time begins when the contender's caches
// have synced and ends when a watch has seen the last binding.
func (st *stage) throughput(g *groups) (*result, error) {
	if err := st.submit(g); err != nil {
		return nil, err
	}
	st.seen.reset()
	r := &result{Figures: map[string]float64{}}
	err := st.running(g.contender, r, g.pods(), func(ctx context.Context) error {
		began := time.Now()
		if err := st.seen.awaitBound(ctx, g.pods()); err != nil {
			return err
		}
		first, last := st.seen.span()
		r.Figures["pods_per_s"] = float64(g.pods()) / last.Sub(began).Seconds()
		r.Figures["first_bound"] = 1000 * first.Sub(began).Seconds()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r, st.clearAll(g)
}

// creation measures how fast pods are created while no scheduler runs, which shows the cost of admission. The groups
// are created before the measurement.
func (st *stage) creation(g *groups) (*result, error) {
	if err := parallel(st.ctx, g.names, func(name string) error { return st.submitGroup(g, name) }); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := st.createPods(g); err != nil {
		return nil, err
	}
	r := &result{Figures: map[string]float64{"created_per_s": float64(g.pods()) / time.Since(began).Seconds()}}
	return r, st.clearAll(g)
}

// clearAll deletes the submitted groups and waits until their pods are gone.
func (st *stage) clearAll(g *groups) error {
	st.seen.reset()
	if err := st.clear(g.run); err != nil {
		return err
	}
	return st.seen.awaitGone(st.ctx, g.pods())
}

// running starts the contender, calls do, waits until the contender sends no more requests, and stops it. It records
// the contender's cost per pod, which is its CPU since its caches have synced and its writes since its start, and its
// requests and peak memory.
func (st *stage) running(c *contender, r *result, pods int, do func(context.Context) error) error {
	if _, err := st.audit.Next(); err != nil {
		return err
	}
	ctx, child, err := st.startScheduler(c.part)
	if err != nil {
		return err
	}
	defer child.stop()
	before, err := child.cpu()
	if err != nil {
		return err
	}
	if err := do(ctx); err != nil {
		return err
	}
	s := session{plane: st.plane}
	if err := s.quiet(); err != nil {
		return err
	}
	after, err := child.cpu()
	if err != nil {
		return err
	}
	requests, err := st.audit.Next()
	if err != nil {
		return err
	}
	r.Requests = audit.Count(slices.DeleteFunc(requests, ofElection))
	writes := 0
	for sort, n := range r.Requests {
		if !isRead(sort) {
			writes += n
		}
	}
	r.Figures["cpu_per_1000"] = 1000 * (after - before).Seconds() / float64(pods)
	r.Figures["writes_per_pod"] = float64(writes) / float64(pods)
	_, r.Figures["rss_peak"], err = child.memory()
	return err
}
