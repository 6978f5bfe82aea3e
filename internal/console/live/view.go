package live

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/console/view"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/observed"
)

// Rights reports which resources a viewer may list.
type Rights interface {
	// List returns the scope in which the viewer may list a resource. namespaces are the namespaces to check; there are
	// none for a cluster-scoped resource.
	List(resource schema.GroupResource, namespaces []string) Scope
}

// Scope is the set of namespaces in which a viewer may list a resource.
type Scope struct {
	// All is true if the viewer may list the resource in all namespaces.
	All bool
	// In holds, for each checked namespace, whether the viewer may list the resource there. It may be nil if All is
	// true.
	In map[string]bool
}

// Includes reports whether a namespace is in the scope.
func (s Scope) Includes(namespace string) bool { return s.All || s.In[namespace] }

// View is the part of the cache that one viewer may see. The objects are shared and must not be modified.
type View struct {
	cache  *Cache
	rights Rights
}

// For returns the view of a viewer with rights. If rights is nil, the viewer sees everything in the cache.
func (c *Cache) For(rights Rights) *View { return &View{c, rights} }

// Subscribe calls Cache.Subscribe, which needs no rights, because a notice does not reveal what has changed.
func (v *View) Subscribe(topics ...string) (notices <-chan struct{}, end func()) {
	return v.cache.Subscribe(topics...)
}

// scope returns the scope in which the viewer may list a source's resource. It checks the given namespaces or, if none
// are given, all namespaces with objects.
func (v *View) scope(s *source, namespaces ...string) Scope {
	if v.rights == nil {
		return Scope{All: true}
	}
	if len(namespaces) == 0 {
		namespaces = s.namespaces()
	}
	return v.rights.List(schema.GroupResource{Group: s.group, Resource: s.plural}, namespaces)
}

// scopes returns the viewer's scopes for some sources as text. Two viewers get the same text if and only if they have
// the same scopes.
func (v *View) scopes(sources ...*source) string {
	var b strings.Builder
	for _, s := range sources {
		scope := v.scope(s)
		b.WriteString(s.plural + "." + s.group + ":")
		if scope.All {
			b.WriteString("*\n")
			continue
		}
		for _, namespace := range slices.Sorted(maps.Keys(scope.In)) {
			if scope.In[namespace] {
				b.WriteString(namespace + ",")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// JobsScope returns the viewer's scopes for the sources that Jobs and HiddenJobs read.
func (v *View) JobsScope() string { return v.scopes(v.cache.jobs...) }

// QueuesScope returns the viewer's scopes for the sources that Queues reads.
func (v *View) QueuesScope() string {
	c := v.cache
	return v.scopes(append([]*source{c.queues, c.groups, c.pods, c.nodes}, c.jobs...)...)
}

// NodesScope returns the viewer's scopes for the sources that Nodes reads.
func (v *View) NodesScope() string { return v.scopes(v.cache.nodes, v.cache.pods, v.cache.groups) }

// visible returns those objects in all that the viewer may list. all holds objects of the source s, and visible
// overwrites it.
func visible[T metav1.Object](v *View, s *source, all []T) []T {
	scope := v.scope(s)
	if scope.All {
		return all
	}
	return slices.DeleteFunc(all, func(o T) bool { return !scope.Includes(o.GetNamespace()) })
}

// Jobs returns the rows of all visible jobs in no particular order.
func (v *View) Jobs() []view.JobRow {
	scopes := map[string]Scope{}
	for i, s := range v.cache.jobs {
		scopes[kinds.All[i].Name] = v.scope(s)
	}
	c := v.cache
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]view.JobRow, 0, len(c.rows))
	for _, r := range c.rows {
		if scopes[r.Kind].Includes(r.Namespace) {
			all = append(all, r)
		}
	}
	return all
}

// Job returns a job; nil if it does not exist or the viewer may not list it.
func (v *View) Job(kind *kinds.Kind, namespace, name string) *observed.Job {
	i := slices.IndexFunc(kinds.All, func(k kinds.Kind) bool { return k.Name == kind.Name })
	if i < 0 || !v.scope(v.cache.jobs[i], namespace).Includes(namespace) {
		return nil
	}
	for _, object := range keyed[kinds.Object](v.cache.jobs[i], namespace+"/"+name) {
		return &observed.Job{Kind: &kinds.All[i], Object: object}
	}
	return nil
}

// Input returns the cached objects that the page of a job needs, as far as the viewer may see them.
func (v *View) Input(j *observed.Job, now time.Time) *view.JobInput {
	c := v.cache
	in := &view.JobInput{Job: j, Groups: visible(v, c.groups, list[*scheduling.PodGroup](c.groups)), Waiting: v.Waiting(), Partial: len(v.Hidden(c.groups, c.pods)) > 0, Now: now,
		Taken: func(name string) bool { return v.Job(j.Kind, j.GetNamespace(), name) != nil }, Hidden: v.hiddenIn(j.GetNamespace(), c.pods, c.events[0])}
	seen := map[string]bool{}
	for _, p := range v.Pods(j) {
		seen[string(p.UID)] = true
		in.Pods = append(in.Pods, p)
	}
	pods, conditions := c.past.of(keyOf(j))
	in.Conditions = conditions
	if v.scope(c.pods, j.GetNamespace()).Includes(j.GetNamespace()) {
		for _, p := range pods {
			if !seen[string(p.UID)] {
				in.Pods = append(in.Pods, p)
			}
		}
	}
	if v.scope(c.events[0], j.GetNamespace()).Includes(j.GetNamespace()) {
		v.addEvents(in, JobTopic(j.Kind.Name, j.GetNamespace(), j.GetName()))
	}
	return in
}

// addEvents adds the events about a job, and the warnings about the pods in in.Pods, both sorted by time. The viewer
// must have the right to list events in the job's namespace.
func (v *View) addEvents(in *view.JobInput, topic string) {
	for _, s := range v.cache.events {
		for _, e := range indexed[*corev1.Event](s, byName, topic) {
			if e.InvolvedObject.UID == in.Job.GetUID() {
				in.Events = append(in.Events, e)
			}
		}
	}
	for _, p := range in.Pods {
		for _, e := range indexed[*corev1.Event](v.cache.warnings, byUID, string(p.UID)) {
			if e.Namespace == p.Namespace { // events in other namespaces can name any UID
				in.Warnings = append(in.Warnings, e)
			}
		}
	}
	for _, all := range [][]*corev1.Event{in.Events, in.Warnings} {
		slices.SortStableFunc(all, func(a, b *corev1.Event) int { return observed.EventTime(a).Compare(observed.EventTime(b)) })
	}
}

// Pods returns the current pods of a job; nil if the viewer may not list the pods in its namespace.
func (v *View) Pods(j *observed.Job) []*corev1.Pod {
	if !v.scope(v.cache.pods, j.GetNamespace()).Includes(j.GetNamespace()) {
		return nil
	}
	return indexed[*corev1.Pod](v.cache.pods, byJob, keyOf(j))
}

// keyOf returns the key of a job in the index byJob.
func keyOf(j *observed.Job) string {
	return JobTopic(j.Kind.Name, j.GetNamespace(), j.GetName()) + "/" + string(j.GetUID())
}

// Waiting returns the visible pods that wait for the t9k-scheduler.
func (v *View) Waiting() []*corev1.Pod {
	return visible(v, v.cache.pods, indexed[*corev1.Pod](v.cache.pods, waiting, "yes"))
}

// Queues returns the visible objects that the page of queues needs.
func (v *View) Queues() *view.QueuesInput {
	c := v.cache
	in := &view.QueuesInput{Queues: visible(v, c.queues, list[*scheduling.Queue](c.queues)), Groups: visible(v, c.groups, list[*scheduling.PodGroup](c.groups)),
		Waiting: v.Waiting(), Nodes: visible(v, c.nodes, list[*corev1.Node](c.nodes)), Paths: map[string]bool{}, Hidden: v.Hidden(c.queues, c.groups, c.pods)}
	for _, r := range v.Jobs() {
		in.Paths[r.Path] = true
	}
	return in
}

// Nodes returns the visible objects that the page of nodes needs.
func (v *View) Nodes() *view.NodesInput {
	c := v.cache
	return &view.NodesInput{Nodes: visible(v, c.nodes, list[*corev1.Node](c.nodes)), Pods: visible(v, c.pods, indexed[*corev1.Pod](c.pods, onNode, "yes")),
		Groups: visible(v, c.groups, list[*scheduling.PodGroup](c.groups)), Hidden: v.Hidden(c.nodes, c.pods)}
}

// HiddenJobs describes the jobs that the viewer may not list, in the order of the kinds; nil if there are none.
func (v *View) HiddenJobs() []view.Hidden { return v.Hidden(v.cache.jobs...) }

// Hidden describes what the viewer may not list of some sources, in their order; nil if the viewer may list everything.
func (v *View) Hidden(sources ...*source) []view.Hidden {
	var all []view.Hidden
	for _, s := range sources {
		switch h := s.isHidden(); {
		case h != nil:
			all = append(all, *h)
		case v.scope(s).All:
		default:
			all = append(all, view.Hidden{What: s.what, Others: s.namespaced})
		}
	}
	return all
}

// hiddenIn describes what the viewer may not list of some sources in a namespace.
func (v *View) hiddenIn(namespace string, sources ...*source) []view.Hidden {
	var all []view.Hidden
	for _, s := range sources {
		switch h := s.isHidden(); {
		case h != nil && h.Within == namespace: // everything in this namespace is visible
		case h != nil:
			all = append(all, *h)
		case !v.scope(s, namespace).Includes(namespace):
			all = append(all, view.Hidden{What: s.what + " of namespace " + namespace})
		}
	}
	return all
}

// HiddenPods describes what the viewer may not list of the pods in a job's namespace.
func (v *View) HiddenPods(j *observed.Job) []view.Hidden {
	return v.hiddenIn(j.GetNamespace(), v.cache.pods)
}
