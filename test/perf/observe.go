package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// observer records when pods and jobs change, as seen by a client that watches them.
type observer struct {
	mu   sync.Mutex
	pods map[types.UID]*podSeen
	// running and finished hold, by name, the times at which jobs reported that all their replicas run, and that they
	// succeeded.
	running, finished map[string]time.Time
	n                 counts
	changed           chan struct{}
}

// counts are numbers of pods, and of jobs that have reported a state.
type counts struct {
	created int // so far
	running int // now
	started int // so far
	ended   int // so far, without being deleted
	gone    int // so far

	jobsRunning, jobsFinished int
}

type podSeen struct {
	name, job      string
	running, ended time.Time
}

// observe starts to watch the pods and the system's jobs.
func observe(p *plane, sys *system) (*observer, error) {
	o := &observer{changed: make(chan struct{}, 1)}
	o.reset()
	if err := o.watch(p, &corev1.PodList{}, o.pod); err != nil {
		return nil, err
	}
	if sys.jobs == nil {
		return o, nil
	}
	return o, o.watch(p, sys.jobs(), func(_ watch.EventType, object client.Object, now time.Time) {
		note := func(times map[string]time.Time, holds bool) {
			if _, known := times[object.GetName()]; !known && holds {
				times[object.GetName()] = now
			}
		}
		note(o.running, sys.runs(object))
		note(o.finished, sys.finished(object))
	})
}

// watch calls note, with the lock held, for each further event of the objects of the list's kind. It watches in the
// background until p.ctx ends, and cancels p.ctx if that fails.
func (o *observer) watch(p *plane, list client.ObjectList, note func(watch.EventType, client.Object, time.Time)) error {
	if err := p.client.List(p.ctx, list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing what to watch: %w", err)
	}
	version := list.GetResourceVersion()
	go func() {
		for { // the API server ends the watch of a client that reads slowly; the next one continues from the last version
			var err error
			if version, err = o.follow(p, list, version, note); err != nil {
				p.cancel(fmt.Errorf("watching: %w", err))
				return
			}
		}
	}()
	return nil
}

// follow watches until the API server ends the watch, and returns the version up to which it has recorded all events.
func (o *observer) follow(p *plane, list client.ObjectList, version string, note func(watch.EventType, client.Object, time.Time)) (string, error) {
	w, err := p.client.Watch(p.ctx, list, client.InNamespace(namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})
	if err != nil {
		return version, err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		object, ok := e.Object.(client.Object)
		if !ok {
			return version, fmt.Errorf("%v", e.Object)
		}
		now := time.Now()
		o.mu.Lock()
		note(e.Type, object, now)
		o.mu.Unlock()
		version = object.GetResourceVersion()
		select {
		case o.changed <- struct{}{}:
		default:
		}
	}
	return version, p.ctx.Err()
}

// pod records an event of a pod.
func (o *observer) pod(t watch.EventType, object client.Object, now time.Time) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	seen := o.pods[pod.UID]
	if seen == nil {
		seen = &podSeen{name: pod.Name, job: pod.Labels[jobLabel]}
		o.pods[pod.UID] = seen
		o.n.created++
	}
	if pod.Status.Phase == corev1.PodRunning && seen.running.IsZero() {
		seen.running = now
		o.n.started++
		o.n.running++
	}
	over := t == watch.Deleted || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if over && seen.ended.IsZero() {
		seen.ended = now
		if !seen.running.IsZero() {
			o.n.running--
		}
		if t != watch.Deleted {
			o.n.ended++
		}
	}
	if t == watch.Deleted {
		o.n.gone++
	}
}

// reset discards all records.
func (o *observer) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pods, o.running, o.finished, o.n = map[types.UID]*podSeen{}, map[string]time.Time{}, map[string]time.Time{}, counts{}
}

// await returns as soon as the condition holds, or an error when ctx ends. It checks the condition again after new
// events.
func (o *observer) await(ctx context.Context, what string, holds func(counts) bool) error {
	for {
		o.mu.Lock()
		n := o.n
		n.jobsRunning, n.jobsFinished = len(o.running), len(o.finished)
		o.mu.Unlock()
		if holds(n) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w (%+v)", what, context.Cause(ctx), n)
		case <-o.changed:
		}
	}
}

// lastStart returns the time at which the observer saw the last pod start; zero if none has started.
func (o *observer) lastStart() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	var last time.Time
	for _, pod := range o.pods {
		if pod.running.After(last) {
			last = pod.running
		}
	}
	return last
}

// live returns the names of the pods that have started and have not ended.
func (o *observer) live() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var names []string
	for _, pod := range o.pods {
		if !pod.running.IsZero() && pod.ended.IsZero() {
			names = append(names, pod.name)
		}
	}
	return names
}

// endLags returns, for each job that has finished, the time from the end of its last pod until the job reported
// success.
func (o *observer) endLags() []time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lags(o.finished, func(pod *podSeen) time.Time { return pod.ended })
}

// startLags returns, for each job that has reported that all its replicas run, the time from the start of its last pod
// until this report.
func (o *observer) startLags() []time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lags(o.running, func(pod *podSeen) time.Time { return pod.running })
}

// lags returns, for each job in reported, the time from the event of its last pod until the job's report.
func (o *observer) lags(reported map[string]time.Time, happened func(*podSeen) time.Time) []time.Duration {
	last := map[string]time.Time{}
	for _, pod := range o.pods {
		if at := happened(pod); at.After(last[pod.job]) {
			last[pod.job] = at
		}
	}
	var all []time.Duration
	for job, at := range reported {
		all = append(all, max(0, at.Sub(last[job]))) // events of pods and jobs arrive on different connections
	}
	return all
}
