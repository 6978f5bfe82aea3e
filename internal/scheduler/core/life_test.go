package core

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// life is a random cluster with its jobs.
type life struct {
	*world
	t       testing.TB
	rand    *rand.Rand
	ends    map[*Pod]int // the step at which a pod finishes
	step    int
	todo    map[*Group]int // pods that have not succeeded
	stats   map[string]int
	serial  int
	reserve int
}

func newLife(t testing.TB, seed uint64) *life {
	l := newLifeOf(t, random(seed))
	l.unchecked = seed%10 != 0 // the check takes as long as the round itself
	return l
}

func newLifeOf(t testing.TB, random *rand.Rand) *life {
	l := &life{world: newWorld(), t: t, rand: random, ends: map[*Pod]int{}, todo: map[*Group]int{}, stats: map[string]int{}, reserve: 10}
	for range 1 + l.rand.IntN(7) {
		l.addNode(int64(2+l.rand.IntN(7)), []string{"s", "t"}[l.rand.IntN(2)], []string{"", "a", "b"}[l.rand.IntN(3)])
	}
	for i := range 1 + l.rand.IntN(4) {
		q := l.queue(string(rune('a'+i)), int64(max(0, l.rand.IntN(40)-10)), int32(l.rand.IntN(3)))
		q.Preemptible = l.rand.IntN(4) > 0
	}
	l.cluster.ReserveAfter = time.Duration(l.reserve) * time.Minute
	for range 2 + l.rand.IntN(10) {
		l.arrive()
	}
	return l
}

// arrive adds a job of a random kind, unless the job would not fit the otherwise empty cluster.
func (l *life) arrive() {
	l.serial++
	queues := sortedKeys(l.cluster.Queues)
	n, cpu := 1+l.rand.IntN(5), int64(1+l.rand.IntN(4))
	g := l.group(fmt.Sprintf("g%02d", l.serial), queues[l.rand.IntN(len(queues))], n, cpu)
	g.Created = l.cluster.Now
	g.Priority = int32(l.rand.IntN(3))
	class := []string{"any", "any", "s", "t", ""}[l.rand.IntN(5)]
	for _, p := range g.Pods {
		if p.Shape = fmt.Sprint(class, "/", cpu); class == "" {
			p.Shape, p.Role = "", g.Name
		}
	}
	switch l.rand.IntN(6) {
	case 0:
		g.Min = 1 + l.rand.IntN(n)
	case 1:
		g.Pods[0].Role, g.Roles = "ps", map[string]int{"ps": 1, "worker": 0}
	case 2:
		g.Topology = []Topology{BestEffort, Required}[l.rand.IntN(2)]
	}
	if !l.alone(g) {
		l.cluster.Groups = l.cluster.Groups[:len(l.cluster.Groups)-1]
		return
	}
	l.todo[g] = n
}

// alone reports whether all pods of a group fit an empty cluster and the quota of its queue.
func (l *life) alone(g *Group) bool {
	w := newWorld()
	for _, n := range l.nodes {
		w.addNode(n.size["cpu"], n.class, n.domain)
	}
	q := *l.cluster.Queues[g.Queue]
	w.cluster.Queues[q.Name] = &q
	c := *g
	c.Min = len(g.Pods)
	c.Pods = nil
	for _, p := range g.Pods {
		o := *p
		c.Pods = append(c.Pods, &o)
	}
	w.cluster.Groups = []*Group{&c}
	w.round(l.t)
	return bound(&c) == len(c.Pods)
}

func (l *life) run() {
	const arrivals, last = 30, 600
	for l.step = 0; l.step < last; l.step++ {
		l.pass()
		if l.step < arrivals && l.rand.IntN(3) == 0 {
			l.arrive()
		}
		l.check()
		if l.t.Failed() {
			return
		}
		if l.step >= arrivals && len(l.todo) == 0 {
			return
		}
	}
	for g := range l.todo {
		l.t.Errorf("group %+v has not ended after %d steps", *g, last)
	}
}

// pass advances the clock by a minute: pods finish or are deleted, evicted pods are created again, and sometimes a pod
// is lost.
func (l *life) pass() {
	l.cluster.Now = l.cluster.Now.Add(time.Minute)
	for _, g := range slices.Clone(l.cluster.Groups) {
		for _, p := range slices.Clone(g.Pods) {
			switch {
			case p.Node == "":
			case p.Ending && l.rand.IntN(2) == 0, l.step < 30 && l.rand.IntN(200) == 0:
				l.end(p)
				l.again(g, p)
			case !p.Ending && l.step >= l.ends[p]:
				l.end(p)
				g.Finished[p.Role]++
				l.todo[g]--
			}
		}
		if l.todo[g] == 0 {
			delete(l.todo, g)
			l.cluster.Groups = slices.DeleteFunc(l.cluster.Groups, func(o *Group) bool { return o == g })
		}
	}
}

// again creates a pod that replaces a deleted one.
func (l *life) again(g *Group, p *Pod) {
	l.serial++
	o := *p
	o.Name = fmt.Sprintf("%s-%d", p.Name[:3], l.serial)
	o.UID, o.Node, o.Ending, o.Gone, o.Created = o.Name, "", false, false, l.cluster.Now
	g.Pods = append(g.Pods, &o)
}

func (l *life) errorf(format string, args ...any) {
	l.t.Helper()
	l.t.Errorf("step %d: %s", l.step, fmt.Sprintf(format, args...))
}
