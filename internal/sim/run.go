package sim

import (
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// Run plays one world: trouble for a while, then calm until everything that can end has ended. It returns what was found
// to be wrong. trace, where not nil, is told every step.
func Run(seed uint64, steps int, trace func(format string, args ...any)) error {
	rng := rand.New(rand.NewPCG(seed, 2))
	w := newWorld(seed, randomJob(rng), trace)
	cfg := engine.Config{MaxListed: 1000, Coalesce: time.Duration(1+rng.IntN(20)) * time.Second}
	c := newController(w, cfg)
	if w.chance(70) {
		c.fence = 0 // it led before there was the job
	}
	for range steps {
		w.step()
		c = c.turn(true)
		if len(w.errs) > 0 {
			return fmt.Errorf("seed %d: %s", seed, strings.Join(w.errs, "; "))
		}
	}
	if w.job.Debug {
		w.debugToggled()
	}
	w.job.Pause = w.chance(20)
	w.lost = map[string]bool{}
	w.inc.disturbed = w.now
	w.jobChanged()
	for range 4000 {
		if w.settled() && c.idle() {
			break
		}
		w.calmStep()
		c = c.turn(false)
	}
	w.checkCalm()
	if len(w.errs) > 0 {
		return fmt.Errorf("seed %d: %s", seed, strings.Join(w.errs, "; "))
	}
	return nil
}

// turn lets the controller, or its successor, do something.
func (c *controller) turn(faults bool) *controller {
	w := c.w
	if faults && w.chance(2) {
		return newController(w, c.cfg)
	}
	if faults && w.chance(2) {
		c.frozen, c.deaf = w.rng.IntN(20), w.rng.IntN(4)
	}
	if faults && c.frozen > 0 {
		c.frozen--
		return c
	}
	c.sync(!faults)
	if faults && w.chance(30) {
		return c
	}
	if !c.reconcile(faults) {
		return newController(w, c.cfg)
	}
	return c
}

// idle is true when the controller's last pass left nothing to do and nothing to wait for.
func (c *controller) idle() bool {
	return c.jobPos == len(c.w.jobLog) && c.current() && c.wake.IsZero()
}

// step lets the world do something, trouble included.
func (w *world) step() {
	longest := 4000
	if w.chance(25) {
		longest = 300
	}
	w.now = w.now.Add(time.Duration(w.rng.IntN(longest)) * time.Millisecond)
	if w.chance(3) {
		w.now = w.now.Add(time.Duration(w.rng.IntN(400)) * time.Second)
	}
	w.reportDue()
	if w.chance(4) {
		w.exitTogether()
	}
	if pod := w.anyPod(); pod != nil {
		switch n := w.rng.IntN(100); {
		case n < 60:
			w.kubelet(pod)
		case n < 64:
			w.userDeletes(pod)
		case n < 67:
			w.evict(pod)
		}
	}
	w.userStep()
}

// userStep lets people, and those who run nodes, do something.
func (w *world) userStep() {
	before := w.version
	defer func() {
		if w.version != before || len(w.lost) > 0 {
			w.inc.disturbed = w.now
		}
	}()
	switch n := w.rng.IntN(200); {
	case n == 0 && len(w.lost) == 0:
		w.lost["node-1"] = true
	case n == 1:
		w.lost = map[string]bool{}
	case n == 2 || n == 3 && w.job.Pause:
		w.job.Pause = !w.job.Pause
		w.jobChanged()
	case n == 4 || n == 5 && w.job.Debug:
		w.debugToggled()
	case n < 12 && w.job.Elastic != nil:
		w.scale()
	}
}

func (w *world) calmStep() {
	w.now = w.now.Add(time.Duration(1+w.rng.IntN(60)) * time.Second)
	w.reportDue()
	if pod := w.anyPod(); pod != nil {
		w.kubelet(pod)
	}
}

func (w *world) anyPod() *corev1.Pod {
	names := make([]string, 0, len(w.pods))
	for n := range w.pods {
		names = append(names, n)
	}
	if len(names) == 0 {
		return nil
	}
	sort.Strings(names)
	return w.pods[names[w.rng.IntN(len(names))]]
}

// settled is true where nothing in the world is left to move.
func (w *world) settled() bool {
	for _, p := range w.pods {
		if !ended(p) || p.DeletionTimestamp != nil {
			return false
		}
	}
	return true
}

// endless jobs restart successes without bound, so they never end.
func (w *world) endless() bool {
	for i := range w.job.Roles {
		r := &w.job.Roles[i].Restart
		if r.Limit == nil && w.job.RestartLimit == nil && (r.OnSuccess || r.OnFailure || len(r.RestartCodes) > 0) {
			return true
		}
	}
	return false
}

// checkCalm is the state that must be reached once the trouble is over.
func (w *world) checkCalm() {
	switch {
	case finished(w.status):
		w.checkCleanUp()
	case w.job.Pause:
		if len(w.pods) > 0 || w.status.Phase != batch.JobPaused {
			w.fail("paused, but phase %s with %d pods", w.status.Phase, len(w.pods))
		}
	case w.job.Deadline != nil && w.now.Sub(w.status.StartTime.Time) > *w.job.Deadline+time.Minute:
		w.fail("the job outlived its deadline: started %s", w.status.StartTime)
	case !w.endless():
		w.fail("the job did not end: phase %s, %+v", w.status.Phase, w.status.Tasks)
	}
}

func (w *world) checkCleanUp() {
	for name, p := range w.pods {
		if decided(p) && !ended(p) {
			w.fail("the sidecar of pod %s runs on", name)
		}
	}
	if w.job.CleanUp == batch.CleanUpAll && len(w.pods) > 0 {
		w.fail("%d pods are left after clean-up All", len(w.pods))
	}
	for name, p := range w.pods {
		if w.job.CleanUp == batch.CleanUpUnfinished && !ended(p) {
			w.fail("pod %s runs on after clean-up Unfinished", name)
		}
		if reasonOf(w.status, batch.JobFailedCondition) == batch.ReasonDeadlineExceeded && !ended(p) {
			w.fail("pod %s runs on after the deadline", name)
		}
	}
}

// randomJob makes a small job with rules, limits and policies of every sort.
func randomJob(rng *rand.Rand) engine.Job {
	j := engine.Job{APIVersion: batch.GroupVersion.String(), Kind: "GenericJob", Namespace: "ns", Name: "j", UID: "job",
		CleanUp: []batch.CleanUpPolicy{batch.CleanUpNone, batch.CleanUpUnfinished, batch.CleanUpAll}[rng.IntN(3)]}
	for i := range 1 + rng.IntN(2) {
		r := engine.Role{Type: []string{"worker", "ps-x"}[i], Replicas: 1 + rng.IntN(3), Template: &corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}}
		limit := int32(rng.IntN(4))
		r.Restart = engine.Restart{OnFailure: rng.IntN(5) > 0, OnSuccess: rng.IntN(8) == 0, Limit: &limit}
		if rng.IntN(10) == 0 {
			r.Restart.Limit = nil
		}
		if rng.IntN(4) == 0 {
			r.Restart.RestartCodes, r.Restart.FailCodes = []engine.CodeRange{{First: 3, Last: 255}}, []engine.CodeRange{{First: 1, Last: 1}}
		}
		j.Roles = append(j.Roles, r)
	}
	if rng.IntN(2) == 0 {
		j.Service = &engine.Service{}
	}
	if rng.IntN(2) == 0 {
		for i := range j.Roles {
			j.Roles[i].Restart.All = rng.IntN(5) > 0
		}
	}
	if rng.IntN(2) == 0 {
		asTraining(rng, &j)
		return j
	}
	if rng.IntN(2) == 0 {
		j.Success = []engine.Rule{{Text: "{}", Members: []engine.Member{{Role: 0, Rank: 0}}}}
	}
	if rng.IntN(2) == 0 {
		j.Failure = []engine.Rule{{Text: "{}", Members: []engine.Member{{Role: 0, Rank: j.Roles[0].Replicas - 1}}}}
	}
	return j
}
