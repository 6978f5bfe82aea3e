package sim

import (
	"context"
	"fmt"
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/jobcontroller"
	"tensorstack.dev/batch/internal/kinds"
)

// watcher receives the events that a cache sees.
type watcher interface {
	jobEvent(before, after client.Object)
	podEvent(before, after *corev1.Pod)
	objectEvent(kind string, before, after client.Object)
}

// cache is the part of each object's history that a process has seen. Each object has its own lag.
type cache struct {
	of *world
	// jobPos counts the events of the job that the cache has seen, podPos those of each pod, and objectPos those of the
	// Service and the PodGroup.
	jobPos            int
	podPos, objectPos map[string]int
	cachedPods        map[string]*corev1.Pod
}

// newCache returns a cache that has listed everything. The list shows the job as it was lag events ago, but not before
// its creation.
func newCache(w *world, lag int) cache {
	c := cache{of: w, podPos: map[string]int{}, objectPos: map[string]int{}, cachedPods: map[string]*corev1.Pod{}}
	c.jobPos = max(min(1, len(w.jobLog)), len(w.jobLog)-lag)
	c.syncPods(nil, func() bool { return true })
	for kind, log := range w.objectLog {
		c.objectPos[kind] = len(log)
	}
	return c
}

// clone returns an independent copy of the cache.
func (c *cache) clone() cache {
	return cache{of: c.of, jobPos: c.jobPos, podPos: maps.Clone(c.podPos), objectPos: maps.Clone(c.objectPos), cachedPods: maps.Clone(c.cachedPods)}
}

// cachedJob returns the job as the cache shows it; nil if there is none.
func (c *cache) cachedJob() kinds.Object {
	if c.jobPos == 0 {
		return nil
	}
	return c.of.jobLog[c.jobPos-1]
}

// cachedVersion returns the version of the job as the cache shows it; "0" if there is none.
func (c *cache) cachedVersion() string {
	if job := c.cachedJob(); job != nil {
		return job.GetResourceVersion()
	}
	return "0"
}

func (c *cache) nextOfJob(to watcher) {
	before := c.cachedJob()
	c.jobPos++
	if to != nil {
		to.jobEvent(orNil(before), orNil(c.cachedJob()))
	}
}

// orNil converts a job to a client.Object; nil remains nil.
func orNil(o kinds.Object) client.Object {
	if o == nil {
		return nil
	}
	return o
}

// nextOfPod advances the cache by one event of a pod.
func (c *cache) nextOfPod(name string, to watcher) {
	before, after := c.cachedPods[name], c.of.podLog[name][c.podPos[name]]
	c.podPos[name]++
	if after != nil {
		c.cachedPods[name] = after
	} else {
		delete(c.cachedPods, name)
	}
	if to != nil && (before != nil || after != nil) {
		to.podEvent(before, after)
	}
}

// cachedObject returns the job's Service or PodGroup as the cache shows it; nil if there is none.
func (c *cache) cachedObject(kind string) client.Object {
	if n := c.objectPos[kind]; n > 0 {
		return c.of.objectLog[kind][n-1]
	}
	return nil
}

func (c *cache) nextOfObject(kind string, to watcher) {
	before := c.cachedObject(kind)
	c.objectPos[kind]++
	if to != nil {
		to.objectEvent(kind, before, c.cachedObject(kind))
	}
}

// syncPods advances the cache by the new events of each pod in turn, until there are none or more returns false, which
// ends only the turn of this pod.
func (c *cache) syncPods(to watcher, more func() bool) {
	for _, name := range sortedKeys(c.of.podLog) {
		for c.podPos[name] < len(c.of.podLog[name]) && more() {
			c.nextOfPod(name, to)
		}
	}
}

// syncSome advances the cache of a standby, which has no watcher, by some of the new events.
func (c *cache) syncSome(w *world) {
	for c.jobPos < len(w.jobLog) && w.chance(70) {
		c.nextOfJob(nil)
	}
	c.syncPods(nil, func() bool { return w.chance(80) })
	for _, kind := range sortedKeys(w.objectLog) {
		for c.objectPos[kind] < len(w.objectLog[kind]) && w.chance(80) {
			c.nextOfObject(kind, nil)
		}
	}
}

// current reports whether the cache shows the current state of everything.
func (c *cache) current() bool {
	for name, log := range c.of.podLog {
		if c.podPos[name] < len(log) {
			return false
		}
	}
	for kind, log := range c.of.objectLog {
		if c.objectPos[kind] < len(log) {
			return false
		}
	}
	return c.jobPos == len(c.of.jobLog)
}

// trim is the function with which the operator's caches trim a pod.
var trim = func() func(any) (any, error) {
	options, err := jobcontroller.CacheOptions()
	if err != nil {
		panic(err)
	}
	for o, by := range options.ByObject {
		if _, pod := o.(*corev1.Pod); pod {
			return by.Transform
		}
	}
	panic("the caches keep pods as they are")
}()

func trimmed(pod *corev1.Pod) *corev1.Pod {
	out, err := trim(pod.DeepCopy())
	if err != nil {
		panic(err)
	}
	return out.(*corev1.Pod)
}

// Get reads an object from the cache. A job shares its data with the cache.
func (c apiClient) Get(_ context.Context, key client.ObjectKey, out client.Object, _ ...client.GetOption) error {
	o := c.o
	switch out := out.(type) {
	case *metav1.PartialObjectMetadata:
		have := o.cachedObject(out.Kind)
		if have == nil || key != jobKey {
			return notFound(out.Kind, key.Name)
		}
		copyMeta(have, out)
		return nil
	case *scheduling.PodGroup:
		have := o.cachedObject("PodGroup")
		if have == nil || key != jobKey {
			return notFound("podgroups", key.Name)
		}
		have.(*scheduling.PodGroup).DeepCopyInto(out)
		return nil
	}
	cached := o.cachedJob()
	if cached == nil || key != jobKey {
		return notFound(o.w.kind.Plural, key.Name)
	}
	reflect.ValueOf(out).Elem().Set(reflect.ValueOf(cached).Elem())
	return nil
}

// List lists the pods of a job from the cache. The pods share their data with the cache.
func (c apiClient) List(_ context.Context, out client.ObjectList, opts ...client.ListOption) error {
	list, ok := out.(*corev1.PodList)
	if !ok {
		return fmt.Errorf("the simulated cache does not list %T", out)
	}
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	for _, name := range sortedKeys(c.o.cachedPods) {
		pod := c.o.cachedPods[name]
		owner := metav1.GetControllerOfNoCopy(pod)
		for _, r := range o.FieldSelector.Requirements() {
			if owner != nil && owner.UID == types.UID(r.Value) {
				list.Items = append(list.Items, *pod)
			}
		}
	}
	return nil
}
