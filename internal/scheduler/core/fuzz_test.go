package core

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// byteSource is a source of random numbers that a fuzzer chooses, one byte each. When the bytes are used up, it
// continues with the numbers of a seed.
type byteSource struct {
	bytes []byte
	then  rand.Source
}

func (s *byteSource) Uint64() uint64 {
	if len(s.bytes) == 0 {
		return s.then.Uint64()
	}
	b := uint64(s.bytes[0])
	s.bytes = s.bytes[1:]
	return b * 0x0101010101010101
}

func chosen(bytes []byte) *rand.Rand {
	return rand.New(&byteSource{bytes: bytes, then: rand.NewPCG(uint64(len(bytes)), 7)})
}

// FuzzLife verifies that clusters like those of TestProperties keep the invariants when a fuzzer chooses their random
// numbers.
func FuzzLife(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("nodes, queues and groups of different sizes"))
	f.Fuzz(func(t *testing.T, bytes []byte) { newLifeOf(t, chosen(bytes)).run() })
}

// FuzzRound verifies that a round on a cluster with numbers at the bounds of the API does not panic, decides the same
// each time, and does not raise the use of a queue above its quota.
func FuzzRound(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255})
	f.Add([]byte("groups that ask for more than there is"))
	f.Fuzz(func(t *testing.T, bytes []byte) {
		first, second := extreme(bytes), extreme(bytes)
		for range 3 {
			before := exactUse(first)
			texts := [2]string{textOf(first.round(t)), textOf(second.round(t))}
			if texts[0] != texts[1] {
				t.Fatalf("the same cluster has two plans:\n%s\n%s", texts[0], texts[1])
			}
			for key, used := range exactUse(first) {
				limit, ok := first.cluster.Queues[key[0]].Quota[key[1]]
				if was := before[key]; ok && used.Cmp(big.NewInt(limit)) > 0 && (was == nil || used.Cmp(was) > 0) {
					t.Fatalf("queue %s uses %v %s of %d:\n%s", key[0], used, key[1], limit, texts[0])
				}
			}
		}
	})
}

// extreme returns a cluster with numbers from the ends of their ranges.
func extreme(bytes []byte) *world {
	w, random := newWorld(), chosen(bytes)
	of := func(values ...int64) int64 { return values[random.IntN(len(values))] }
	for range 1 + random.IntN(4) {
		w.addNode(of(0, 1, 4, 1000, MaxRequest, math.MaxInt64), "s", []string{"", "a", "b"}[random.IntN(3)])
	}
	for i := range 1 + random.IntN(3) {
		q := w.queue(string(rune('a'+i)), of(0, 1, 3, 1000, MaxRequest, math.MaxInt64), int32(of(math.MinInt32, 0, 1, math.MaxInt32)))
		q.Preemptible, q.Closed = random.IntN(4) > 0, random.IntN(8) == 0
		q.Capacity = Resources{"cpu": of(0, 4, MaxRequest, math.MaxInt64)}
	}
	for i := range 1 + random.IntN(6) {
		n := random.IntN(5)
		g := w.group(fmt.Sprint("g", i), string(rune('a'+random.IntN(4))), n, of(0, 1, 2, 4, MaxRequest-1, MaxRequest))
		g.Min = int(of(0, 1, int64(n), int64(n)+1, math.MaxInt32))
		g.Priority = int32(of(math.MinInt32, 0, math.MaxInt32))
		g.Topology = []Topology{"", BestEffort, Required, "Unknown"}[random.IntN(4)]
		if random.IntN(3) == 0 {
			g.Roles["worker"] = int(of(0, 1, int64(n), math.MaxInt32))
		}
		if random.IntN(4) == 0 {
			g.Finished["worker"] = int(of(0, 1, math.MaxInt32))
		}
		if random.IntN(3) == 0 && n > 0 && w.cluster.Queues[g.Queue] != nil {
			w.run(g, w.nodes[random.IntN(len(w.nodes))].name) // whether the pod fits or not
		}
	}
	return w
}

// exactUse returns the sum of the requests of pods with a node, by queue and resource.
func exactUse(w *world) map[[2]string]*big.Int {
	sums := map[[2]string]*big.Int{}
	for _, g := range w.cluster.Groups {
		if w.cluster.Queues[g.Queue] == nil {
			continue
		}
		for _, p := range g.Pods {
			for name, v := range p.Requests {
				key := [2]string{g.Queue, name}
				if sums[key] == nil {
					sums[key] = new(big.Int)
				}
				if p.Node != "" {
					sums[key].Add(sums[key], big.NewInt(v))
				}
			}
		}
	}
	return sums
}

// textOf describes decisions.
func textOf(decisions map[string]*Decision) string {
	text := ""
	for _, name := range sortedKeys(decisions) {
		d := decisions[name]
		text += fmt.Sprintf("%s: %s %s, evicts %v\n", name, d.Reason, d.Message, names(d.Evict))
		for _, gang := range d.Gangs {
			for _, at := range gang {
				text += fmt.Sprintf("  %s on %s\n", at.Pod.Name, at.Node)
			}
		}
	}
	return text
}
