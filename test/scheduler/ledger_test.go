package scheduler

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
)

// ledger follows all pods of a stage by one watch. It sees each state of each pod in the order in which the API server took
// them, and so holds each moment against what must be true at all of them: no node and no quota gives more than it has, and no
// gang stays bound in part.
type ledger struct {
	stage *stage
	// nodeCPU is what each node has, quotas what each queue may use, both in thousandths of a CPU. partFor is how long a gang
	// that was never whole may be bound in part.
	nodeCPU int64
	quotas  map[string]int64
	partFor time.Duration

	mu      sync.Mutex
	changed chan struct{} // closed with the next event
	pods    map[types.UID]*corev1.Pod
	nodes   map[string]int64
	queues  map[string]int64
	gangs   map[string]*gang
	// check is asked at each event what is wrong; nil: nothing more than the above.
	check func() string
	wrong []string
	// seen are the names of all pods that there were.
	seen map[string]bool
	// peak is the most that was used at any time, evictions how often the scheduler evicted a pod: they tell whether a test tried
	// anything.
	peak      map[string]int64
	evictions int
}

// gang is what a ledger knows of one.
type gang struct {
	min   int
	pods  map[types.UID]*corev1.Pod
	whole bool      // its minimum was bound together
	since time.Time // since when it is bound in part; zero while it is not
}

// follow begins a ledger; there must be no pods yet.
func (s *stage) follow(nodeCPU int64, quotas map[string]int64, partFor time.Duration) *ledger {
	s.Helper()
	l := &ledger{stage: s, nodeCPU: nodeCPU, quotas: quotas, partFor: partFor, changed: make(chan struct{}), pods: map[types.UID]*corev1.Pod{},
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

func holdsRoom(p *corev1.Pod) bool {
	return p != nil && p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

func preempted(p *corev1.Pod) bool {
	return p != nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Reason == corev1.PodReasonPreemptionByScheduler
	})
}

// member tells whether a pod counts for the minimum of its gang.
func member(p *corev1.Pod) bool {
	return p.Spec.NodeName != "" && p.Status.Phase != corev1.PodFailed && (p.DeletionTimestamp == nil || p.Status.Phase == corev1.PodSucceeded)
}

func (l *ledger) take(e watch.Event) {
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

func (l *ledger) errorf(format string, args ...any) {
	if len(l.wrong) < 10 {
		l.wrong = append(l.wrong, fmt.Sprintf("%s: %s", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...)))
	}
}

func queueOf(p *corev1.Pod) string { return p.Labels[scheduling.LabelQueue] }

func (l *ledger) account(p *corev1.Pod, sign int64) {
	if !holdsRoom(p) {
		return
	}
	cpu := sign * p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
	l.nodes[p.Spec.NodeName] += cpu
	l.queues[queueOf(p)] += cpu
}

func (l *ledger) checkRoom(p *corev1.Pod) {
	if !holdsRoom(p) {
		return
	}
	if used := l.nodes[p.Spec.NodeName]; used > l.nodeCPU {
		l.errorf("with pod %s, node %s gives %dm of %dm", p.Name, p.Spec.NodeName, used, l.nodeCPU)
	}
	q := queueOf(p)
	l.peak[q] = max(l.peak[q], l.queues[q])
	if quota, ok := l.quotas[q]; ok && l.queues[q] > quota {
		l.errorf("with pod %s, queue %s uses %dm of its quota of %dm", p.Name, q, l.queues[q], quota)
	}
}

func (l *ledger) updateGang(p, now *corev1.Pod) {
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
	case n == 0 || g.whole: // a gang that ran and lost pods waits for room like any other
		g.since = time.Time{}
	case g.since.IsZero():
		g.since = time.Now()
	}
	for name, g := range l.gangs {
		if !g.since.IsZero() && time.Since(g.since) > l.partFor {
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

// expect tells the ledger of a gang before its first pod.
func (l *ledger) expect(name string, minimum int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gangs[name] = &gang{min: minimum, pods: map[types.UID]*corev1.Pod{}}
}

func (l *ledger) forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.gangs, name)
}

// bound counts the pods of a gang that have a node. The ledger is locked.
func (l *ledger) bound(name string) int {
	if g := l.gangs[name]; g != nil {
		return g.count(member)
	}
	return 0
}

// on lists the names of the pods that have not ended on a node.
func (l *ledger) on(node string) (names []string) {
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

// states are the pods of a gang that exist, by name.
func (l *ledger) states(gang string) map[string]*corev1.Pod {
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

// saw tells whether there ever was a pod of that name.
func (l *ledger) saw(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[name]
}

func (l *ledger) failed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.wrong) > 0
}

// await waits for something to become true. The ledger is locked while true is asked.
func (l *ledger) await(what string, isTrue func() bool) {
	l.stage.Helper()
	deadline := time.After(await.Patience)
	for {
		l.mu.Lock()
		ok, changed, wrong := isTrue(), l.changed, len(l.wrong) > 0
		l.mu.Unlock()
		if wrong {
			l.stage.FailNow() // the ledger says why
		}
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			l.stage.Fatalf("%s: it has not come to that after %s", what, await.Patience)
		}
	}
}
