package core

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"
)

var crowds = flag.Int("crowds", 250, "number of random clusters in which large groups wait among small ones")

// TestNoStarvation verifies that small groups do not keep large groups from starting. Small groups arrive continuously
// and take all room that becomes free, while large groups wait. Once ReserveAfter has passed, the first large group
// waits at most one minute longer than the longest pod runs, and each further large group waits at most that long
// again.
func TestNoStarvation(t *testing.T) {
	waited := 0
	for s := uint64(1); s <= uint64(*crowds); s++ {
		c := newCrowd(t, s)
		if c.run(); t.Failed() {
			t.Fatalf("seed %d", s)
		}
		waited += c.waited
	}
	t.Logf("%d large groups had a reservation", waited)
	if waited < *crowds/2 {
		t.Errorf("in %d clusters only %d large groups waited long enough: the clusters are not crowded", *crowds, waited)
	}
}

// crowd is a cluster that is always full. Each step is one minute. Pods run for at most longest minutes. large are the
// large groups, and waited counts those that started after ReserveAfter.
type crowd struct {
	*life
	longest int
	large   []*Group
	waited  int
}

func newCrowd(t testing.TB, seed uint64) *crowd {
	l := &life{world: newWorld(), t: t, rand: random(seed), ends: map[*Pod]int{}, reserve: 10}
	for range 1 + l.rand.IntN(6) {
		l.addNode(int64(2+l.rand.IntN(7)), "", "")
	}
	l.cluster.ReserveAfter = time.Duration(l.reserve) * time.Minute
	c := &crowd{life: l, longest: 1 + l.rand.IntN(12)}
	for i := range 1 + l.rand.IntN(3) {
		l.queue(string(rune('a'+i)), 0, 0)
	}
	if total := l.cluster.Queues["a"].Capacity["cpu"]; l.rand.IntN(3) == 0 { // the quota is the scarce resource
		l.cluster.Queues["a"].Quota = Resources{"cpu": max(2, total-int64(l.rand.IntN(int(total))))}
	}
	return c
}

// small adds more small groups than fit. Groups that have waited for half of ReserveAfter give up, because groups that
// wait as long as a large one are ordered by queue and priority.
func (c *crowd) small() {
	names := sortedKeys(c.cluster.Queues)
	waiting := 0
	c.cluster.Groups = slices.DeleteFunc(c.cluster.Groups, func(g *Group) bool {
		if bound(g) > 0 || slices.Contains(c.large, g) {
			return false
		}
		late := c.cluster.Now.Sub(g.Since) >= c.cluster.ReserveAfter/2
		if !late {
			waiting++
		}
		return late
	})
	for range 12 - waiting {
		c.serial++
		g := c.group(fmt.Sprintf("s%04d", c.serial), names[c.rand.IntN(len(names))], 1, int64(1+c.rand.IntN(2)))
		g.Created, g.Since = c.cluster.Now, c.cluster.Now
		g.Priority = int32(c.rand.IntN(3))
	}
}

// arrive adds a large group that fits an empty cluster.
func (c *crowd) arrive() {
	for {
		c.serial++
		g := c.group(fmt.Sprintf("l%04d", c.serial), "a", 2+c.rand.IntN(6), int64(1+c.rand.IntN(6)))
		if c.alone(g) {
			g.Created, g.Since = c.cluster.Now, c.cluster.Now
			c.large = append(c.large, g)
			return
		}
		c.cluster.Groups = slices.DeleteFunc(c.cluster.Groups, func(o *Group) bool { return o == g })
		if c.serial > 100_000 {
			c.t.Fatal("no large group fits this cluster")
		}
	}
}

func (c *crowd) run() {
	const first = 15 // the cluster is full by then
	for c.step = 0; c.step < first; c.step++ {
		c.minute()
	}
	for range 1 + c.rand.IntN(3) {
		c.arrive()
		if len(c.large) > 1 && !c.fitTogether() {
			c.cluster.Groups = slices.DeleteFunc(c.cluster.Groups, func(o *Group) bool { return o == c.large[len(c.large)-1] })
			c.large = c.large[:len(c.large)-1]
		}
	}
	ran := make([]int, len(c.large))
	for done := 0; done < len(c.large); c.step++ {
		c.minute()
		for i, g := range c.large {
			if ran[i] == 0 && bound(g) > 0 {
				done++
				ran[i] = c.step
				if c.step-first >= c.reserve {
					c.waited++
				}
			}
		}
		if limit := first + c.reserve + (done+1)*(c.longest+1); c.step > limit && done < len(c.large) {
			c.errorf("%d of %d large groups run; other pods run for at most %d minutes", done, len(c.large), c.longest)
			return
		}
	}
}

// fitTogether reports whether the quota and the capacity of the queue allow all large groups at once, so that no large
// group waits for another one to finish.
func (c *crowd) fitTogether() bool {
	sum := int64(0)
	for _, g := range c.large {
		for _, p := range g.Pods {
			sum += p.Requests["cpu"]
		}
	}
	quota, ok := c.cluster.Queues["a"].Quota["cpu"]
	return sum <= c.cluster.Queues["a"].Capacity["cpu"] && (!ok || sum <= quota)
}

// minute terminates pods, adds groups and runs a round.
func (c *crowd) minute() {
	c.cluster.Now = c.cluster.Now.Add(time.Minute)
	for _, g := range slices.Clone(c.cluster.Groups) {
		for _, p := range slices.Clone(g.Pods) {
			if p.Node != "" && c.step >= c.ends[p] {
				c.end(p)
			}
		}
		if len(g.Pods) == 0 {
			c.cluster.Groups = slices.DeleteFunc(c.cluster.Groups, func(o *Group) bool { return o == g })
		}
	}
	c.small()
	for _, d := range c.round(c.t) {
		for _, gang := range d.Gangs {
			for _, at := range gang {
				c.ends[at.Pod] = c.step + 1 + c.rand.IntN(c.longest)
			}
		}
	}
	c.checkNodesOnly()
}

// checkNodesOnly checks that the pods on a node use no more than its capacity.
func (c *crowd) checkNodesOnly() {
	for _, n := range c.nodes {
		used := int64(0)
		for p := range n.pods {
			if p.Node != "" {
				used += p.Requests["cpu"]
			}
		}
		if used > n.size["cpu"] {
			c.errorf("node %s has %d CPUs and gives %d", n.name, n.size["cpu"], used)
		}
	}
}
