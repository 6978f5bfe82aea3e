package jobcontroller

import (
	"sync"
	"time"
)

// The creations and deletions of pods under way at once, over all jobs, are at least leastAtOnce and at most mostAtOnce.
const leastAtOnce, mostAtOnce = 4, 64

// latencySamples is the number of requests after which most of what was measured before is forgotten.
const latencySamples = 16

// pace bounds the creations and deletions of pods under way, over all jobs, by how long the API server takes for one. A server
// that is short of CPU does no more when it is asked for more at once. It does less: it no longer empties the buffers of
// watches in time, ends those of everybody, and serves them all anew.
type pace struct {
	mu       sync.Mutex
	room     sync.Cond
	underWay int
	latency  time.Duration // moving average
}

func newPace() *pace {
	p := &pace{latency: atEase}
	p.room.L = &p.mu
	return p
}

// do sends a request once there is room for it.
func (p *pace) do(send func() error) error {
	p.enter()
	began := time.Now()
	err := send()
	p.leave(time.Since(began))
	return err
}

func (p *pace) enter() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.underWay >= p.atOnce() {
		p.room.Wait()
	}
	p.underWay++
	p.wakeNext()
}

func (p *pace) leave(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency += (took - p.latency) / latencySamples
	p.underWay--
	p.wakeNext()
}

// wakeNext wakes one of those that wait, who wakes the next.
func (p *pace) wakeNext() {
	if p.underWay < p.atOnce() {
		p.room.Signal()
	}
}

// atOnce is the number of requests that may be under way: all while a request takes no longer than it does at ease, and the
// fewer the longer it takes.
func (p *pace) atOnce() int {
	return max(leastAtOnce, int(mostAtOnce*atEase/max(p.latency, atEase)))
}
