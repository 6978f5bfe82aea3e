// Package ledger tracks all pods of a namespace in the order of their changes. After each change, it checks that no
// node and no quota is exceeded and that no gang remains partly bound. Start reading at Start.
package ledger

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/test/kit/await"
	"tensorstack.dev/batch/test/kit/namespace"
)

// Rules holds the limits that apply at all times.
type Rules struct {
	// NodeCPU is the CPU of each node. Quotas holds the CPU that each queue may use. Both are in thousandths of a CPU.
	NodeCPU int64
	Quotas  map[string]int64
	// PartFor is the longest time for which a gang that was never completely bound may be partly bound.
	PartFor time.Duration
}

// Ledger watches all pods of a namespace. It sees each state of each pod, in the order in which the API server accepted
// the states, and checks the rules after each.
type Ledger struct {
	s     *namespace.Test
	rules Rules

	mu      sync.Mutex
	changed chan struct{} // closed at the next event
	pods    map[types.UID]*corev1.Pod
	nodes   map[string]int64
	queues  map[string]int64
	gangs   map[string]*gang
	check   func() string
	wrong   []string
	// seen holds the names of all pods that have ever existed.
	seen map[string]bool
	// peak is the highest CPU use of each queue so far, in thousandths of a CPU. evictions is the number of pods that
	// the scheduler has evicted.
	peak      map[string]int64
	evictions int
}

// gang is the observed state of a gang.
type gang struct {
	min   int
	pods  map[types.UID]*corev1.Pod
	whole bool      // at least min pods were bound at the same time, now or earlier
	since time.Time // when it became partly bound; zero if it is not partly bound
}

// Start starts a ledger. When the test ends, the ledger stops and reports the violations. The namespace must have no
// pods yet.
func Start(s *namespace.Test, rules Rules) *Ledger {
	s.Helper()
	l := &Ledger{s: s, rules: rules, changed: make(chan struct{}), pods: map[types.UID]*corev1.Pod{},
		nodes: map[string]int64{}, queues: map[string]int64{}, gangs: map[string]*gang{}, peak: map[string]int64{}, seen: map[string]bool{}}
	pods := s.Core.CoreV1().Pods(s.Namespace)
	list, err := pods.List(s.Context(), metav1.ListOptions{})
	s.Must(err)
	if len(list.Items) > 0 {
		s.Fatalf("there are %d pods before the ledger", len(list.Items))
	}
	w, err := watchtools.NewRetryWatcherWithContext(s.Context(), list.ResourceVersion, &toolscache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return pods.Watch(ctx, o) }})
	s.Must(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			l.take(e)
		}
	}()
	s.Cleanup(func() {
		w.Stop()
		<-done
		for _, text := range l.wrong {
			s.Error(text)
		}
	})
	return l
}

// CheckAlso makes the ledger call check after every event. check returns a violation, or an empty string. It may call
// Bound and AnyBound.
func (l *Ledger) CheckAlso(check func() string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.check = check
}

// Do calls f while the ledger does not handle events. f may call Bound and AnyBound.
func (l *Ledger) Do(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// Peak returns the highest CPU use of a queue so far, in thousandths of a CPU. A test uses it to check that it loaded
// the queue.
func (l *Ledger) Peak(queue string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.peak[queue]
}

// Evictions returns the number of pods that the scheduler has evicted. A test uses it to check that it caused
// preemption.
func (l *Ledger) Evictions() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.evictions
}

// AnyBound reports whether a pod was ever bound. Only functions that are passed to Do, Await and CheckAlso may call
// it.
func (l *Ledger) AnyBound() bool { return len(l.nodes) > 0 }

func holdsRoom(p *corev1.Pod) bool {
	return p != nil && p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

func preempted(p *corev1.Pod) bool {
	return p != nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Reason == corev1.PodReasonPreemptionByScheduler
	})
}

// member reports whether a pod counts towards the minimum of its gang.
func member(p *corev1.Pod) bool {
	return p.Spec.NodeName != "" && p.Status.Phase != corev1.PodFailed && (p.DeletionTimestamp == nil || p.Status.Phase == corev1.PodSucceeded)
}

func (l *Ledger) take(e watch.Event) {
	p, ok := e.Object.(*corev1.Pod)
	if !ok {
		if e.Type == watch.Error {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.errorf("the watch failed: %v", e.Object)
		}
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[p.Name] = true
	old := l.pods[p.UID]
	if preempted(p) && !preempted(old) {
		l.evictions++
	}
	now := p
	if e.Type == watch.Deleted {
		now = nil
		delete(l.pods, p.UID)
	} else {
		l.pods[p.UID] = p
	}
	l.account(old, -1)
	l.account(now, 1)
	if now != nil {
		l.checkRoom(p)
	}
	l.updateGang(p, now)
	if l.check != nil {
		if text := l.check(); text != "" {
			l.errorf("%s", text)
		}
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Ledger) errorf(format string, args ...any) {
	if len(l.wrong) < 10 {
		l.wrong = append(l.wrong, fmt.Sprintf("%s: %s", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...)))
	}
}

func queueOf(p *corev1.Pod) string { return p.Labels[scheduling.LabelQueue] }

func (l *Ledger) account(p *corev1.Pod, sign int64) {
	if !holdsRoom(p) {
		return
	}
	cpu := sign * p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
	l.nodes[p.Spec.NodeName] += cpu
	l.queues[queueOf(p)] += cpu
}

func (l *Ledger) checkRoom(p *corev1.Pod) {
	if !holdsRoom(p) {
		return
	}
	if used := l.nodes[p.Spec.NodeName]; used > l.rules.NodeCPU {
		l.errorf("with pod %s, node %s gives %dm of %dm", p.Name, p.Spec.NodeName, used, l.rules.NodeCPU)
	}
	q := queueOf(p)
	l.peak[q] = max(l.peak[q], l.queues[q])
	if quota, ok := l.rules.Quotas[q]; ok && l.queues[q] > quota {
		l.errorf("with pod %s, queue %s uses %dm of its quota of %dm", p.Name, q, l.queues[q], quota)
	}
}

func (l *Ledger) updateGang(p, now *corev1.Pod) {
	name := p.Labels[scheduling.LabelGroupName]
	g := l.gangs[name]
	if g == nil {
		return
	}
	if delete(g.pods, p.UID); now != nil {
		g.pods[p.UID] = now
	}
	n := g.count(member)
	switch {
	case n >= g.min:
		g.whole, g.since = true, time.Time{}
	case n == 0 || g.whole: // a gang that was complete may stay partly bound while replacements of its pods wait
		g.since = time.Time{}
	case g.since.IsZero():
		g.since = time.Now()
	}
	for name, g := range l.gangs {
		if !g.since.IsZero() && time.Since(g.since) > l.rules.PartFor {
			l.errorf("gang %s has been bound in part for %s: %d of %d", name, time.Since(g.since), g.count(member), g.min)
			g.since = time.Time{}
		}
	}
}

func (g *gang) count(which func(*corev1.Pod) bool) int {
	n := 0
	for _, p := range g.pods {
		if which(p) {
			n++
		}
	}
	return n
}

// Expect makes the ledger check a gang, which needs at least minimum pods. Call it before the gang's first pod is
// created.
func (l *Ledger) Expect(name string, minimum int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gangs[name] = &gang{min: minimum, pods: map[types.UID]*corev1.Pod{}}
}

// Forget stops checking a gang.
func (l *Ledger) Forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.gangs, name)
}

// Bound returns the number of bound pods of a gang that count towards its minimum. Only functions that are passed to
// Do, Await and CheckAlso may call it.
func (l *Ledger) Bound(name string) int {
	if g := l.gangs[name]; g != nil {
		return g.count(member)
	}
	return 0
}

// On returns the sorted names of the pods on a node that have not terminated.
func (l *Ledger) On(node string) (names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.pods {
		if p.Spec.NodeName == node && holdsRoom(p) {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names
}

// States returns the existing pods of a gang, by name.
func (l *Ledger) States(gang string) map[string]*corev1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string]*corev1.Pod{}
	if g := l.gangs[gang]; g != nil {
		for _, p := range g.pods {
			all[p.Name] = p
		}
	}
	return all
}

// Saw reports whether a pod with this name has ever existed.
func (l *Ledger) Saw(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[name]
}

// Failed reports whether there was a violation.
func (l *Ledger) Failed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.wrong) > 0
}

// Await waits until isTrue returns true. It calls isTrue again after events, while the ledger handles no other event,
// so isTrue may call Bound and AnyBound. It may skip states, because several events can precede a call. A violation
// ends the test at once.
func (l *Ledger) Await(what string, isTrue func() bool) {
	l.s.Helper()
	deadline := time.After(await.Patience)
	for {
		l.mu.Lock()
		ok, changed, wrong := isTrue(), l.changed, len(l.wrong) > 0
		l.mu.Unlock()
		if wrong {
			l.s.FailNow() // the ledger reports the violation at the end of the test
		}
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			l.s.Fatalf("%s: this did not become true within %s", what, await.Patience)
		}
	}
}
