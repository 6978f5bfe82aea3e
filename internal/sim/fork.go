package sim

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// fork returns a copy of a world. Changes of the copy do not affect the original. Both share the objects that are never
// modified. The copy has a new source of random numbers.
func (w *world) fork() *world {
	c := *w
	c.rng = rand.New(rand.NewPCG(1, 1))
	c.pods = maps.Clone(w.pods)
	for name, pod := range c.pods {
		c.pods[name] = pod.DeepCopy()
	}
	c.objects, c.lost, c.reports, c.events = maps.Clone(w.objects), maps.Clone(w.lost), maps.Clone(w.reports), maps.Clone(w.events)
	c.codes, c.errs, c.jobLog = slices.Clone(w.codes), slices.Clone(w.errs), slices.Clone(w.jobLog)
	c.podLog, c.objectLog, c.past = cloneEach(w.podLog), cloneEach(w.objectLog), cloneEach(w.past)
	c.inc.allRan = slices.Clone(w.inc.allRan)
	return &c
}

func cloneEach[T any](m map[string][]T) map[string][]T {
	c := make(map[string][]T, len(m))
	for k, list := range m {
		c[k] = slices.Clone(list)
	}
	return c
}
