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

// callers is the number of requests that the benchmark has under way at once.
const callers = 32

// result is what was measured of one workload on one system.
type result struct {
	Figures map[string]float64 `json:"figures"`
	// Requests of the controller by verb and resource, those of its leader election left out.
	Requests map[string]int `json:"requests,omitempty"`
}

// session is one measurement.
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

// warmUp runs one job to its end, so that every program has loaded, connected and listed what it needs.
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

// set notes a figure; its name says which.
func (s *session) set(figure string, value float64) { s.result.Figures[figure] = value }

// submit makes jobs with a number of replicas each.
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

// awaitSaid waits until so many jobs have said that all their replicas run. The floor has no jobs.
func (s *session) awaitSaid(jobs int) error {
	if s.sys.jobs == nil {
		return nil
	}
	return s.seen.await(s.ctx, "all jobs say that they run", func(n counts) bool { return n.jobsRunning >= jobs })
}

// awaitFinished waits until so many jobs have said that they succeeded. The floor has no jobs.
func (s *session) awaitFinished(jobs int) error {
	if s.sys.jobs == nil {
		return nil
	}
	return s.seen.await(s.ctx, "all jobs have finished", func(n counts) bool { return n.jobsFinished >= jobs })
}

// endPods does what kubelets do when the containers of pods exit with code 0.
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

// cost does something and notes what it cost the controller: CPU, requests, and memory at its end.
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

// memory notes the controller's resident memory.
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

// isRead tells whether requests of a sort, as counted, only read.
func isRead(sort string) bool {
	verb, _, _ := strings.Cut(sort, " ")
	return !(&audit.Event{Verb: verb}).Write()
}

// quiet waits until the controller has sent nothing for a second.
func (s *session) quiet() error {
	log := *s.audit // what is read here counts all the same
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

// parallel does something to each of a list, a few at a time. It returns the first error.
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
		return fmt.Errorf("something else makes objects of the same names: %w", err)
	}
	return err
}
