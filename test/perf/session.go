package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tensorstack.dev/batch/internal/testing/audit"
)

// callers is the number of concurrent requests of the benchmark.
const callers = 32

// result holds the figures of one measurement of a workload on a system.
type result struct {
	Figures map[string]float64 `json:"figures"`
	// Requests counts the controller's requests by verb and resource, without those of leader election.
	Requests map[string]int `json:"requests,omitempty"`
}

// session measures one workload on one system.
type session struct {
	*plane
	sys    *system
	seen   *observer
	result result
}

func newSession(p *plane, sys *system) (*session, error) {
	seen, err := observe(p, sys)
	if err != nil {
		return nil, err
	}
	return &session{plane: p, sys: sys, seen: seen, result: result{Figures: map[string]float64{}}}, nil
}

// warmUp runs one job to its end, so that every program has loaded its code, opened its connections and filled its
// caches.
func (s *session) warmUp() error {
	if err := s.submit(4, "warm-up"); err != nil {
		return err
	}
	if err := s.awaitStarted(4); err != nil {
		return err
	}
	if err := s.endPods(s.seen.live()); err != nil {
		return err
	}
	if err := s.awaitFinished(1); err != nil {
		return err
	}
	if err := s.quiet(); err != nil {
		return err
	}
	s.seen.reset()
	return nil
}

// set records a figure under its name.
func (s *session) set(figure string, value float64) { s.result.Figures[figure] = value }

// submit creates jobs with a number of replicas each.
func (s *session) submit(replicas int, names ...string) error {
	var all []client.Object
	for _, name := range names {
		all = append(all, s.sys.objects(name, replicas)...)
	}
	return parallel(s.ctx, all, func(o client.Object) error { return s.client.Create(s.ctx, o) })
}

func (s *session) awaitStarted(pods int) error {
	return s.seen.await(s.ctx, "all pods run", func(n counts) bool { return n.started >= pods })
}

// awaitJobsRunning waits until this number of jobs have reported that all their replicas run. It returns at once for a
// system without jobs.
func (s *session) awaitJobsRunning(jobs int) error {
	if s.sys.jobs == nil {
		return nil
	}
	return s.seen.await(s.ctx, "all jobs report that they run", func(n counts) bool { return n.jobsRunning >= jobs })
}

// awaitFinished waits until this number of jobs have reported success. It returns at once for a system without jobs.
func (s *session) awaitFinished(jobs int) error {
	if s.sys.jobs == nil {
		return nil
	}
	return s.seen.await(s.ctx, "all jobs have finished", func(n counts) bool { return n.jobsFinished >= jobs })
}

// endPods sets the pods' status as a kubelet does when their containers exit with code 0.
func (s *session) endPods(names []string) error {
	return parallel(s.ctx, names, func(name string) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		now := time.Now().UTC().Format(time.RFC3339)
		patch := fmt.Sprintf(`{"status":{"phase":"Succeeded","containerStatuses":[{"name":"main","image":"none","imageID":"",
			"ready":false,"restartCount":0,"state":{"terminated":{"exitCode":0,"reason":"Completed","startedAt":%q,"finishedAt":%q}}}]}}`, now, now)
		return s.client.Status().Patch(s.ctx, pod, client.RawPatch(types.MergePatchType, []byte(patch)))
	})
}

// deletePods deletes pods without a grace period.
func (s *session) deletePods(names []string) error {
	return parallel(s.ctx, names, func(name string) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		return client.IgnoreNotFound(s.client.Delete(s.ctx, pod, client.GracePeriodSeconds(0)))
	})
}

// cost calls do, and records the controller's CPU and requests during the call, and its memory at the end. Without a
// controller, it only calls do.
func (s *session) cost(do func() error) error {
	if s.controller == nil {
		return do()
	}
	if _, err := s.audit.Next(); err != nil {
		return err
	}
	before, err := s.controller.cpu()
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	after, err := s.controller.cpu()
	if err != nil {
		return err
	}
	requests, err := s.audit.Next()
	if err != nil {
		return err
	}
	s.result.Requests = audit.Count(slices.DeleteFunc(requests, ofElection))
	total, watches := 0, 0
	for sort, n := range s.result.Requests {
		if strings.HasPrefix(sort, "watch ") {
			watches += n
		} else {
			total += n
		}
	}
	s.set("cpu", (after - before).Seconds())
	s.set("requests", float64(total))
	s.set("watches", float64(watches))
	return s.memory()
}

// memory records the controller's resident memory.
func (s *session) memory() error {
	if s.controller == nil {
		return nil
	}
	now, peak, err := s.controller.memory()
	s.set("rss", now)
	s.set("rss_peak", peak)
	return err
}

func ofElection(e audit.Event) bool { return e.Resource == "leases" }

// isRead reports whether the requests that audit.Count lists under this key are reads.
func isRead(sort string) bool {
	verb, _, _ := strings.Cut(sort, " ")
	return !(&audit.Event{Verb: verb}).Write()
}

// quiet waits until the controller has sent no request for a second, except those of leader election.
func (s *session) quiet() error {
	log := *s.audit // a copy, because the caller counts these events as well
	for last := time.Now(); time.Since(last) < time.Second; {
		if err := sleep(s.ctx, 100*time.Millisecond); err != nil {
			return err
		}
		events, err := log.Next()
		if err != nil {
			return err
		}
		if len(slices.DeleteFunc(events, ofElection)) > 0 {
			last = time.Now()
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// parallel calls do for each item, with at most callers calls at a time, and returns the first error. After an error,
// it starts no further calls.
func parallel[T any](ctx context.Context, all []T, do func(T) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan T)
	var wg sync.WaitGroup
	for range min(callers, len(all)) {
		wg.Go(func() {
			for item := range next {
				if err := do(item); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, item := range all {
		if ctx.Err() != nil {
			break
		}
		next <- item
	}
	close(next)
	wg.Wait()
	err := context.Cause(ctx)
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("another client creates objects with the same names: %w", err)
	}
	return err
}
