package kinds

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// conversion makes the normal form of an object. Its methods convert what kinds have in common. None of them fails: the normal
// form is the best that can be made of the object, and Validate says what is wrong with it.
type conversion struct {
	job *engine.Job
	// senseless is true where the normal form is not what the object asks for, because something in it means nothing.
	senseless bool
	// badCount is true where the number of a role's replicas means nothing.
	badCount bool
	// expanders replace the variables of each role's pods, where it has any.
	expanders map[int]expander
	// addedEnv is the memory that each role's added environment takes, clusterSize the length of the longest TF_CONFIG.
	addedEnv    map[int]int
	clusterSize int
}

// Convert turns an object into the normal form. It is total: whatever is wrong with the object, the result is safe to hand to
// the engine together with what Validate says (engine.Job.Invalid). A job of which no sense can be made has no roles.
func (k Kind) Convert(o Object) *engine.Job {
	c := k.conversion(o)
	if c.senseless {
		return c.job.Bare()
	}
	return c.job
}

// conversion converts an object, and keeps what can be made of it even where that makes no sense.
func (k Kind) conversion(o Object) *conversion {
	c := &conversion{job: &engine.Job{APIVersion: batch.GroupVersion.String(), Kind: k.Name, ClusterDomain: DefaultClusterDomain}}
	if !k.owns(o) {
		c.senseless = true
		return c
	}
	j := c.job
	j.Namespace, j.Name, j.UID, j.Generation = o.GetNamespace(), nameOf(o), o.GetUID(), o.GetGeneration()
	j.Deleting = o.GetDeletionTimestamp() != nil
	j.RequestedBy = o.GetAnnotations()[scheduling.AnnotationRequestedBy]
	k.convert(o, c)
	c.podSizes()
	return c
}

// generatedSuffix is the number of characters that the API server adds to metadata.generateName.
const generatedSuffix = 5

// nameOf is the name of an object, or one like that which the API server will make.
func nameOf(o Object) string {
	if o.GetName() == "" && o.GetGenerateName() != "" {
		return o.GetGenerateName() + strings.Repeat("x", generatedSuffix)
	}
	return o.GetName()
}

// role appends a role. Its main container is the first; kinds that know better change that.
func (c *conversion) role(role string, replicas *int32, template *corev1.PodTemplateSpec) *engine.Role {
	n := replicasOf(replicas)
	if n < 0 {
		n, c.badCount = 0, true
	}
	c.senseless = c.senseless || role == "" || roleOf(c.job, role) != nil || len(template.Spec.Containers) == 0
	c.job.Roles = append(c.job.Roles, engine.Role{Type: role, Replicas: n, Template: template})
	return &c.job.Roles[len(c.job.Roles)-1]
}

func replicasOf(n *int32) int {
	if n == nil {
		return 1
	}
	return int(*n)
}

// mostReplicas is the largest number of replicas that a job can have, whatever the limits are. It bounds the memory that the
// conversion of finish rules takes.
const mostReplicas = 10_000_000

// counted is called once all roles are there. It returns whether the number of replicas makes sense, so that one can speak of
// each replica.
func (c *conversion) counted() bool {
	total := c.job.Replicas()
	sane := !c.badCount && total <= mostReplicas
	c.senseless = c.senseless || !sane || total == 0
	return sane
}

// cleanUp converts what happens to the pods and to the job after the end.
func (c *conversion) cleanUp(policy batch.CleanUpPolicy, ttl *int32) {
	c.job.CleanUp = batch.CleanUpNone
	if slices.Contains(cleanUpPolicies, policy) {
		c.job.CleanUp = policy
	}
	if ttl != nil && *ttl >= 0 {
		c.job.TTL = seconds(ttl)
	}
}

var cleanUpPolicies = []batch.CleanUpPolicy{batch.CleanUpNone, batch.CleanUpUnfinished, batch.CleanUpAll}

// The bounds of a job's priority.
const minPriority, maxPriority = 0, 100

// scheduler converts the choice of the scheduler. It needs the roles.
func (c *conversion) scheduler(p *batch.SchedulePolicy) {
	if p == nil || p.T9kScheduler == nil {
		return
	}
	s := p.T9kScheduler
	g := &engine.Gang{Queue: s.Queue, MinMember: int32(min(c.job.Replicas(), math.MaxInt32)), ByRole: true}
	if e := c.job.Elastic; e != nil { // any of the roles may be short of its share
		g.MinMember, g.ByRole = int32(min(e.Min, math.MaxInt32)), false
	}
	g.Priority = min(max(orZero(s.Priority), minPriority), maxPriority)
	c.job.Gang = g
}

// roleOf finds a role of a job by its name; nil where there is none.
func roleOf(job *engine.Job, role string) *engine.Role {
	if i := roleIndex(job, role); i >= 0 {
		return &job.Roles[i]
	}
	return nil
}

// roleIndex finds a role of a job by its name; -1 stands for none.
func roleIndex(job *engine.Job, role string) int {
	return slices.IndexFunc(job.Roles, func(r engine.Role) bool { return r.Type == role })
}

// sortedKeys lists the keys of a map in order, for messages that do not change from one call to the next.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}
