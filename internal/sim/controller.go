package sim

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"tensorstack.dev/batch/internal/engine"
)

// controller is a process that sees the world through a cache and may die at any line.
type controller struct {
	w      *world
	cfg    engine.Config
	jobPos int // events of the job log that the cache has seen
	// podPos counts the events of each pod that the cache has seen.
	podPos map[string]int
	pods   map[string]*corev1.Pod
	// succeeded holds pods that were watched to succeed before they were deleted.
	succeeded map[types.UID]*corev1.Pod
	// frozen and deaf are the numbers of turns for which the process does nothing, and then sees nothing new of pods.
	frozen, deaf   int
	contestedSince time.Time
	service        bool
	written        time.Time // or first looked
	wake           time.Time
	// putOffAt is when a plan that can wait was first left to a later pass; zero: none is.
	putOffAt time.Time
	// fence is the version of the job that this process read when it began to lead; nobody else writes later ones.
	fence int
	// tried is true once it has tried to write the status.
	tried bool
}

// newController starts a process: its cache begins with a list, which may be a little old.
func newController(w *world, cfg engine.Config) *controller {
	c := &controller{w: w, cfg: cfg, pods: map[string]*corev1.Pod{}, succeeded: map[types.UID]*corev1.Pod{}, podPos: map[string]int{}, fence: w.version}
	w.forgetWatched()
	c.jobPos = max(1, len(w.jobLog)-w.rng.IntN(2))
	c.syncPods(func() bool { return true })
	clear(c.succeeded) // a list tells nothing of what was before
	return c
}

// syncPods lets the cache see more of each pod, as long as more returns true. One pod's news may be much later than another's.
func (c *controller) syncPods(more func() bool) {
	for _, name := range sortedKeys(c.w.podLog) {
		log := c.w.podLog[name]
		for c.podPos[name] < len(log) && more() {
			pod, before := log[c.podPos[name]], c.pods[name]
			if before != nil && (pod == nil || pod.DeletionTimestamp != nil) && engine.SucceededUndeleted(before) {
				c.succeeded[before.UID] = before
			}
			if pod != nil {
				c.pods[name] = pod
			} else {
				delete(c.pods, name)
			}
			c.podPos[name]++
		}
	}
}

// current is true when the cache shows all pods as they are.
func (c *controller) current() bool {
	for name, log := range c.w.podLog {
		if c.podPos[name] < len(log) {
			return false
		}
	}
	return true
}

// sync lets the cache see a few more events.
func (c *controller) sync(all bool) {
	for c.jobPos < len(c.w.jobLog) && (all || c.w.chance(70)) {
		c.jobPos++
	}
	if c.deaf > 0 && !all {
		c.deaf--
	} else {
		c.syncPods(func() bool { return all || c.w.chance(80) })
	}
	if all || c.w.chance(50) {
		c.service = c.w.service
	}
}

// reconcile is one pass. A false return means that the process died on the way.
func (c *controller) reconcile(faults bool) bool {
	w := c.w
	read := w.jobLog[c.jobPos-1]
	if c.written.IsZero() {
		c.written = w.now
	}
	seen := engine.Seen{Now: w.now, Status: read.status, LastWrite: c.written, Unwritten: read.version > c.fence && !c.tried,
		Service: c.service, LostNodes: w.lost, ContestedSince: c.contestedSince, Succeeded: c.succeeded}
	plan := c.decide(&read.job, seen)
	c.wake = time.Time{}
	if plan.RequeueAfter > 0 {
		c.wake = w.now.Add(plan.RequeueAfter)
	}
	c.checkWake(&read, &plan)
	if faults && c.putsOff(&plan) {
		return true
	}
	return c.apply(plan, &read, faults)
}

func (c *controller) listPods() []*corev1.Pod {
	pods := make([]*corev1.Pod, 0, len(c.pods))
	for _, name := range sortedKeys(c.pods) {
		pods = append(pods, c.pods[name])
	}
	return pods
}

// decide has the engine decide, on live pods where it asks for them.
func (c *controller) decide(job *engine.Job, seen engine.Seen) engine.Plan {
	seen.Pods = c.listPods()
	plan := engine.Next(job, seen, c.cfg)
	if plan.Refresh {
		c.syncPods(func() bool { return true }) // what is seen never goes back
		seen.Pods, seen.Live = c.listPods(), true
		if plan = engine.Next(job, seen, c.cfg); plan.Refresh {
			c.w.fail("live pods are asked for again")
		}
	}
	if !plan.Contested {
		c.contestedSince = time.Time{}
	} else if c.contestedSince.IsZero() {
		c.contestedSince = seen.Now
	}
	return plan
}

// putsOff leaves a plan that can wait to a later pass, as often as it may be left.
func (c *controller) putsOff(plan *engine.Plan) bool {
	if plan.MaxDelay == 0 {
		c.putOffAt = time.Time{}
		return false
	}
	if c.putOffAt.IsZero() {
		c.putOffAt = c.w.now
	}
	if c.w.now.Before(c.putOffAt.Add(plan.MaxDelay)) && c.w.chance(60) {
		c.wake = c.w.now.Add(time.Second)
		return true
	}
	return false
}

// apply carries a plan out in the order that Plan asks for and stops at the first error.
func (c *controller) apply(plan engine.Plan, read *jobEvent, faults bool) bool {
	w, version, status := c.w, read.version, read.status
	var steps []func() error
	if plan.Status != nil {
		c.tried, status = true, plan.Status
		steps = append(steps, func() error {
			err := w.writeStatus(plan.Status, version)
			if err == nil {
				c.written = w.now
			}
			return err
		})
	}
	if plan.Confirm {
		steps = append(steps, func() error {
			if version != w.version {
				return errConflict
			}
			return nil
		})
	}
	for _, d := range plan.Delete {
		steps = append(steps, func() error {
			c.checkDelete(c.pods[d.Name], status)
			return ignore(w.deletePod(d, c.pods[d.Name]), errNotFound)
		})
	}
	for range plan.Create {
		steps = append(steps, func() error {
			w.service = true
			return nil
		})
	}
	for _, s := range plan.Stop {
		steps = append(steps, func() error { return ignore(w.stopPod(s), errNotFound) })
	}
	for _, n := range plan.Pods {
		steps = append(steps, func() error { return ignore(w.createPod(read.job.Pod(n)), errExists) })
	}
	for _, step := range steps {
		if faults && w.chance(3) {
			return false
		}
		if err := w.call(faults, step); err != nil {
			c.wake = w.now
			return true
		}
	}
	return true
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}
