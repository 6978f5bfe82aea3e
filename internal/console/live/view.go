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

// Rights tell what a viewer may list.
type Rights interface {
	// List returns in which of some namespaces the viewer may list a resource. It has no namespaces for a resource that
	// has none.
	List(resource schema.GroupResource, namespaces []string) Scope
}

// Scope is where a viewer may list a resource.
type Scope struct {
	// All is true if the viewer may list the resource everywhere.
	All bool
	// In has the namespaces where the viewer may list it, of those that were asked for.
	In map[string]bool
}

// Includes reports whether the scope has a namespace.
func (s Scope) Includes(namespace string) bool { return s.All || s.In[namespace] }

// View is the cache as one viewer may see it. Its objects are shared: nobody may modify them.
type View struct {
	cache  *Cache
	rights Rights
}

// For returns the cache as a viewer may see it. Without rights the viewer sees all that the cache holds.
func (c *Cache) For(rights Rights) *View { return &View{c, rights} }

// Subscribe is Cache.Subscribe: a notice says nothing about what has changed.
func (v *View) Subscribe(topics ...string) (notices <-chan struct{}, end func()) {
	return v.cache.Subscribe(topics...)
}

// scope returns where the viewer may list a source: in some namespaces, or in all that have objects if there are none.
func (v *View) scope(s *source, namespaces ...string) Scope {
	if v.rights == nil {
		return Scope{All: true}
	}
	if len(namespaces) == 0 {
		namespaces = s.namespaces()
	}
	return v.rights.List(schema.GroupResource{Group: s.group, Resource: s.plural}, namespaces)
}

// scopes returns what the viewer may list of some sources, as a text that is the same for viewers who may list the same.
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

// JobsScope returns what the viewer may list of that which Jobs and HiddenJobs return.
func (v *View) JobsScope() string { return v.scopes(v.cache.jobs...) }

// QueuesScope returns what the viewer may list of that which Queues returns.
func (v *View) QueuesScope() string {
	c := v.cache
	return v.scopes(append([]*source{c.queues, c.groups, c.pods, c.nodes}, c.jobs...)...)
}

// NodesScope returns what the viewer may list of that which Nodes returns.
func (v *View) NodesScope() string { return v.scopes(v.cache.nodes, v.cache.pods, v.cache.groups) }

// visible returns those objects of a source that the viewer may list.
func visible[T metav1.Object](v *View, s *source, all []T) []T {
	scope := v.scope(s)
	if scope.All {
		return all
	}
	return slices.DeleteFunc(all, func(o T) bool { return !scope.Includes(o.GetNamespace()) })
}

// Jobs returns the rows of all jobs, in no order.
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

// Job returns a job; nil if there is none.
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

// Input returns what is known about a job, for its page.
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

// addEvents adds the events about a job, and the warnings about those of its pods that the viewer may see.
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
			if e.Namespace == p.Namespace { // an event of another namespace may name any UID
				in.Warnings = append(in.Warnings, e)
			}
		}
	}
	for _, all := range [][]*corev1.Event{in.Events, in.Warnings} {
		slices.SortStableFunc(all, func(a, b *corev1.Event) int { return observed.EventTime(a).Compare(observed.EventTime(b)) })
	}
}

// Pods returns the present pods of a job.
func (v *View) Pods(j *observed.Job) []*corev1.Pod {
	if !v.scope(v.cache.pods, j.GetNamespace()).Includes(j.GetNamespace()) {
		return nil
	}
	return indexed[*corev1.Pod](v.cache.pods, byJob, keyOf(j))
}

// keyOf returns the key of a job in the index of its pods.
func keyOf(j *observed.Job) string {
	return JobTopic(j.Kind.Name, j.GetNamespace(), j.GetName()) + "/" + string(j.GetUID())
}

// Waiting returns the pods that wait for the t9k-scheduler.
func (v *View) Waiting() []*corev1.Pod {
	return visible(v, v.cache.pods, indexed[*corev1.Pod](v.cache.pods, waiting, "yes"))
}

// Queues returns what is known about queues.
func (v *View) Queues() *view.QueuesInput {
	c := v.cache
	in := &view.QueuesInput{Queues: visible(v, c.queues, list[*scheduling.Queue](c.queues)), Groups: visible(v, c.groups, list[*scheduling.PodGroup](c.groups)),
		Waiting: v.Waiting(), Nodes: visible(v, c.nodes, list[*corev1.Node](c.nodes)), Paths: map[string]bool{}, Hidden: v.Hidden(c.queues, c.groups, c.pods)}
	for _, r := range v.Jobs() {
		in.Paths[r.Path] = true
	}
	return in
}

// Nodes returns what is known about nodes.
func (v *View) Nodes() *view.NodesInput {
	c := v.cache
	return &view.NodesInput{Nodes: visible(v, c.nodes, list[*corev1.Node](c.nodes)), Pods: visible(v, c.pods, indexed[*corev1.Pod](c.pods, onNode, "yes")),
		Groups: visible(v, c.groups, list[*scheduling.PodGroup](c.groups)), Hidden: v.Hidden(c.nodes, c.pods)}
}

// HiddenJobs returns the kinds of job that the user may not list.
func (v *View) HiddenJobs() []view.Hidden { return v.Hidden(v.cache.jobs...) }

// Hidden returns what the user may not list of some sources.
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

// hiddenIn returns what the user may not list of some sources in a namespace.
func (v *View) hiddenIn(namespace string, sources ...*source) []view.Hidden {
	var all []view.Hidden
	for _, s := range sources {
		switch h := s.isHidden(); {
		case h != nil && h.Within == namespace: // nothing of it is hidden
		case h != nil:
			all = append(all, *h)
		case !v.scope(s, namespace).Includes(namespace):
			all = append(all, view.Hidden{What: s.what + " of namespace " + namespace})
		}
	}
	return all
}

// HiddenPods returns what the user may not list of the pods of a job.
func (v *View) HiddenPods(j *observed.Job) []view.Hidden {
	return v.hiddenIn(j.GetNamespace(), v.cache.pods)
}
