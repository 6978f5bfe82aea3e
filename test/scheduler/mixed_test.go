package scheduler

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/test/kit/await"
	"tensorstack.dev/batch/test/kit/ledger"
)

var mixed = flag.Bool("mixed", false, "give TestMixedLoadKeepsGangsAndQuotas its full size: 200 gangs of 1 to 64 pods on 50 nodes, 10 minutes of simulated time")

// size is the size of a simulated cluster and of its load. Times are in simulated seconds.
type size struct {
	nodes, nodeCPU, gangs, largest int
	// arrivals is the time within which all gangs arrive. longest is the longest time for which a pod runs.
	arrivals, longest int
	// drainEvery and killEvery are the intervals of node drains and of kills of the scheduler; zero means never.
	drainEvery, killEvery int
}

var (
	smallWorld = size{nodes: 6, nodeCPU: 8, gangs: 20, largest: 12, arrivals: 30, longest: 12, drainEvery: 12, killEvery: 20}
	fullWorld  = size{nodes: 50, nodeCPU: 16, gangs: 200, largest: 64, arrivals: 460, longest: 180, drainEvery: 15, killEvery: 50}
)

// second is the shortest real duration of a simulated second. It determines the speed of the test; no check depends
// on it.
const second = 100 * time.Millisecond

// TestMixedLoadKeepsGangsAndQuotas verifies that gangs, quotas and preemption work under load. Gangs of two queues,
// one of which may preempt pods of the other, arrive and run for random times. Meanwhile, nodes are drained, removed
// and added, and the scheduler is killed. The test acts as the job controllers, as the administrators who drain
// nodes, and as the processes of the jobs. The ledger's rules must hold at all times, and every gang must finish.
func TestMixedLoadKeepsGangsAndQuotas(t *testing.T) {
	t.Parallel()
	world := smallWorld
	if *mixed {
		world = fullWorld
	}
	s := newStage(t, "gangGracePeriod: 5s", "reserveAfter: 20s")
	s.Must(startKWOK(s.Plane))
	m := newMix(s, world)
	m.run()
	if m.kills == 0 {
		t.Error("the scheduler was never killed, so the test proves little")
	}
}

// newMix creates the nodes and queues of a simulated cluster, and plans its gangs.
func newMix(s *stage, world size) *mix {
	s.Helper()
	m := &mix{stage: s, size: world, random: seeded(s.T), jobs: map[string]*job{}, drained: map[string]bool{}}
	for range world.nodes {
		m.addNode()
	}
	total := world.nodes * world.nodeCPU
	m.quotas = map[string]int64{"low": int64(total) * 950, "high": int64(total) * 500} // 95 % and 50 %
	s.queue("low", fmt.Sprintf("%dm", m.quotas["low"]), 0)
	s.queue("high", fmt.Sprintf("%dm", m.quotas["high"]), 1)
	m.ledger = ledger.Start(s.Test, ledger.Rules{NodeCPU: int64(world.nodeCPU) * 1000, Quotas: m.quotas, PartFor: await.Patience / 2})
	m.plan()
	return m
}

// run simulates the cluster until all gangs have finished. It fails the test after 10 minutes, or if no node was
// drained or no pod replaced.
func (m *mix) run() {
	m.Helper()
	began, deadline := time.Now(), time.Now().Add(10*time.Minute)
	tick := time.NewTicker(second)
	defer tick.Stop()
	for m.now = 0; len(m.coming)+len(m.jobs) > 0; m.now++ {
		m.step()
		if m.Failed() || m.ledger.Failed() {
			m.FailNow() // the ledger reports the violation
		}
		if time.Now().After(deadline) {
			m.Fatalf("after %d simulated seconds these gangs remain: %s", m.now, m.waiting())
		}
		if m.now%60 == 59 {
			m.Logf("after %d simulated seconds (%s): %d gangs will arrive, %d exist, %d pods were created", m.now+1, time.Since(began).Round(time.Second),
				len(m.coming), len(m.jobs), m.pods)
		}
		<-tick.C
	}
	if m.drains == 0 || m.replaced == 0 {
		m.Error("nothing was preempted or replaced, so the test proves nothing")
	}
	m.Logf("%d gangs with %d pods in %d simulated seconds (%s): %d kills, %d drains, %d nodes added, %d evictions by the scheduler, %d pods replaced; at most %dm and %dm of the quotas %v were used",
		m.gangs, m.pods, m.now, time.Since(began).Round(time.Second), m.kills, m.drains, m.added-m.size.nodes, m.ledger.Evictions(), m.replaced,
		m.ledger.Peak("low"), m.ledger.Peak("high"), m.quotas)
}

// mix is a simulated cluster with gangs that arrive and finish.
type mix struct {
	*stage
	size
	random *rand.Rand
	ledger *ledger.Ledger
	quotas map[string]int64
	// arrived is called when all gangs have arrived; it may be nil. now is the current time in simulated seconds.
	arrived func()
	now     int
	// coming holds the gangs that have not arrived, in the order of their arrivals. jobs holds the gangs that have
	// arrived and not finished, by name.
	coming []*job
	jobs   map[string]*job
	// nodes holds the names of all nodes, and drained the names of the nodes that are being drained.
	nodes   []string
	drained map[string]bool

	added, pods, kills, drains, replaced int
}

// job is a gang that arrives in the simulated second at. It has size pods and needs at least min of them.
type job struct {
	name, queue, cpu string
	at, size, min    int
	priority         int32
	// runs holds, by index of the pod, for how many seconds the pod runs after all pods have started.
	runs []int
	// pods holds the names of the pods by index. serial is the number of pods created so far. begun is the first
	// second in which all pods ran, or 0.
	pods   []string
	serial int
	begun  int
}

// plan chooses the gangs at random.
func (m *mix) plan() {
	for i := range m.gangs {
		n := 1 + m.random.IntN(m.largest)
		if m.random.IntN(3) == 0 {
			n = 1 + m.random.IntN(4)
		}
		j := &job{name: fmt.Sprintf("g%03d", i), queue: "low", cpu: []string{"500m", "1", "1", "2"}[m.random.IntN(4)], size: n, min: n,
			at: m.random.IntN(m.arrivals), priority: int32(m.random.IntN(3))}
		if i%4 == 0 {
			j.queue = "high"
		}
		if m.random.IntN(4) == 0 {
			j.min = 1 + m.random.IntN(n)
		}
		longest := 1 + m.random.IntN(m.longest)
		for range n {
			j.runs = append(j.runs, 1+m.random.IntN(longest))
		}
		j.pods = make([]string, n)
		m.coming = append(m.coming, j)
	}
	slices.SortStableFunc(m.coming, func(a, b *job) int { return cmp.Compare(a.at, b.at) })
}

func (m *mix) addNode() {
	m.Helper()
	name := fmt.Sprintf("n%02d", m.added)
	m.added++
	m.simulated(name, m.nodeCPU)
	m.nodes = append(m.nodes, name)
}

// step simulates one second.
func (m *mix) step() {
	m.Helper()
	for len(m.coming) > 0 && m.coming[0].at <= m.now {
		m.submit(m.coming[0])
		m.coming = m.coming[1:]
		if len(m.coming) == 0 && m.arrived != nil {
			m.arrived()
		}
	}
	if busy := len(m.jobs) > 0; busy && m.now%m.drainEvery == m.drainEvery-1 {
		m.drain()
	}
	m.endDrains()
	if len(m.jobs) > 0 && m.killEvery > 0 && m.now%m.killEvery == m.killEvery-1 {
		m.kills++
		m.Must(m.Env.Kill(local.Scheduler))
	}
	for _, name := range slices.Sorted(keysOf(m.jobs)) {
		m.act(m.jobs[name])
	}
}

func keysOf[V any](all map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range all {
			if !yield(k) {
				return
			}
		}
	}
}

func (m *mix) submit(j *job) {
	m.Helper()
	m.jobs[j.name] = j
	m.ledger.Expect(j.name, j.min)
	m.podGroup(j.name, j.queue, j.min, func(g *scheduling.PodGroupSpec) { g.Priority = j.priority })
	m.makePods(j, func(int) bool { return true })
}

// makePods creates the pods of a job with the indices for which lacks returns true.
func (m *mix) makePods(j *job, lacks func(i int) bool) {
	m.Helper()
	var all []func() error
	for i := range j.size {
		if !lacks(i) {
			continue
		}
		if j.pods[i] != "" {
			m.replaced++
		}
		j.serial++
		m.pods++
		j.pods[i] = fmt.Sprintf("%s-%d-%d", j.name, i, j.serial)
		p := m.newPod(j.pods[i], j.cpu, func(p *corev1.Pod) {
			p.Labels = map[string]string{scheduling.LabelGroupName: j.name, scheduling.LabelQueue: j.queue}
		})
		all = append(all, func() error { return m.Client.Create(m.Context(), p) })
	}
	m.sideBySide(all)
}

func (m *mix) sideBySide(all []func() error) {
	m.Helper()
	var group sync.WaitGroup
	errs := make([]error, len(all))
	slots := make(chan struct{}, 8)
	for i, f := range all {
		slots <- struct{}{}
		group.Go(func() { errs[i] = f(); <-slots })
	}
	group.Wait()
	for _, err := range errs {
		m.Must(err)
	}
}

// act acts as the controller and as the processes of a job: it replaces pods that are gone, and ends pods that have
// run for their time.
func (m *mix) act(j *job) {
	m.Helper()
	have := m.ledger.States(j.name)
	running, done := 0, 0
	var ends []func() error
	for i, name := range j.pods {
		p, ok := have[name]
		switch {
		case !ok:
		// The pod was bound while its node was being deleted. No kubelet removes the pod, even if it is evicted.
		case p.Spec.NodeName != "" && !slices.Contains(m.nodes, p.Spec.NodeName):
			ends = append(ends, func() error { return m.collect(name) })
		case p.DeletionTimestamp != nil:
		case p.Status.Phase == corev1.PodSucceeded:
			done++
		case p.Status.Phase != corev1.PodRunning:
		case j.begun > 0 && m.now >= j.begun+j.runs[i]:
			ends = append(ends, func() error { return m.finish(name) })
		default:
			running++
		}
	}
	if j.begun == 0 && running == j.size {
		j.begun = m.now
	}
	m.sideBySide(ends)
	if done == j.size {
		m.end(j.name)
		m.ledger.Forget(j.name)
		delete(m.jobs, j.name)
		return
	}
	m.makePods(j, func(i int) bool { // replace deleted pods once they no longer exist
		_, ok := have[j.pods[i]]
		return !ok && m.ledger.Saw(j.pods[i])
	})
}

// finish makes a pod succeed, unless it has been deleted.
func (m *mix) finish(name string) error {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: m.Namespace}}
	return client.IgnoreNotFound(m.Client.Status().Patch(m.Context(), p, mergePatch([]byte(`{"status":{"phase":"Succeeded"}}`))))
}

// collect deletes a pod of a deleted node, as Kubernetes' pod garbage collector does.
func (m *mix) collect(name string) error {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: m.Namespace}}
	return client.IgnoreNotFound(m.Client.Delete(m.Context(), p, client.GracePeriodSeconds(0)))
}

// drain cordons a random node and evicts its pods, unless this node or a quarter of the nodes is already being drained.
func (m *mix) drain() {
	m.Helper()
	if len(m.nodes)-len(m.drained) <= m.size.nodes*3/4 {
		return
	}
	name := m.nodes[m.random.IntN(len(m.nodes))]
	if m.drained[name] {
		return
	}
	m.drained[name] = true
	m.drains++
	m.changeNode(name, func(n *corev1.Node) { n.Spec.Unschedulable = true })
	m.evictAll(name)
}

func (m *mix) evictAll(node string) {
	m.Helper()
	var all []func() error
	for _, pod := range m.ledger.On(node) {
		all = append(all, func() error {
			err := m.Core.CoreV1().Pods(m.Namespace).EvictV1(m.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod}})
			if apierrors.IsConflict(err) {
				return nil
			}
			return client.IgnoreNotFound(err)
		})
	}
	m.sideBySide(all)
}

// endDrains ends the drains of some of the empty nodes, chosen at random: it uncordons the node or replaces it with a
// new one. It evicts the pods on the nodes that are not empty.
func (m *mix) endDrains() {
	m.Helper()
	for _, name := range slices.Sorted(keysOf(m.drained)) {
		if len(m.ledger.On(name)) > 0 {
			m.evictAll(name) // a pod was bound while the node was being cordoned
			continue
		}
		if m.random.IntN(4) > 0 {
			continue // the node stays cordoned for a while
		}
		delete(m.drained, name)
		if m.random.IntN(2) == 0 {
			m.changeNode(name, func(n *corev1.Node) { n.Spec.Unschedulable = false })
			continue
		}
		m.Must(m.Client.Delete(m.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.own(name)}}))
		m.nodes = slices.DeleteFunc(m.nodes, func(n string) bool { return n == name })
		m.addNode()
	}
}

// waiting describes the gangs that have not finished.
func (m *mix) waiting() string {
	var all []string
	for _, name := range slices.Sorted(keysOf(m.jobs)) {
		j := m.jobs[name]
		bound := 0
		m.ledger.Do(func() { bound = m.ledger.Bound(name) })
		c := m.condition(name)
		all = append(all, fmt.Sprintf("%s in %s: %d of %d (minimum %d) of %s CPUs, %s %s", name, j.queue, bound, j.size, j.min, j.cpu, c.Reason, c.Message))
		have := m.ledger.States(name)
		for _, pod := range j.pods {
			if p, ok := have[pod]; ok {
				all = append(all, fmt.Sprintf("  %s: %s on %q, deleted at %v", pod, p.Status.Phase, p.Spec.NodeName, p.DeletionTimestamp))
			} else {
				all = append(all, fmt.Sprintf("  %s: gone, was seen: %t", pod, m.ledger.Saw(pod)))
			}
		}
	}
	return strings.Join(all, "\n")
}
