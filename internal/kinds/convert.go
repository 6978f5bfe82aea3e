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

// conversion converts an object to an engine.Job. Its methods convert the parts that kinds have in common. They never
// fail: they convert an invalid object as far as possible, and Validate reports the errors.
type conversion struct {
	job *engine.Job
	// uninterpretable is true if the job does not represent what the object asks for, because a part of the object has
	// no meaning.
	uninterpretable bool
	// badCount is true if a role has a negative number of replicas, unless the job is elastic and ignores these
	// numbers.
	badCount bool
	// expanders replace the variables in the pods of the roles, by the index of the role. A role without variables has
	// none.
	expanders map[int]expander
	// addedEnv is the memory in bytes of the environment variables added to the pods of each role, by the index of the
	// role. clusterSize is an upper bound of the length of TF_CONFIG in bytes.
	addedEnv    map[int]int
	clusterSize int
}

// Convert converts an object to an engine.Job. It accepts any object: even for an invalid one, the result is safe to
// pass to the engine if engine.Job.Invalid holds the result of Validate. If the object cannot be interpreted, the job
// has no roles.
func (k Kind) Convert(o Object) *engine.Job {
	c := k.conversion(o)
	if c.uninterpretable {
		return c.job.Bare()
	}
	return c.job
}

// conversion converts an object as far as possible, even if the object cannot be interpreted.
func (k Kind) conversion(o Object) *conversion {
	c := &conversion{job: &engine.Job{APIVersion: batch.GroupVersion.String(), Kind: k.Name, ClusterDomain: DefaultClusterDomain}}
	if !k.owns(o) {
		c.uninterpretable = true
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

// generatedSuffix is the number of characters that the API server appends to metadata.generateName.
const generatedSuffix = 5

// nameOf returns the name of an object. For an object with only a generateName it returns a name at least as long as
// the one that the API server will generate.
func nameOf(o Object) string {
	if o.GetName() == "" && o.GetGenerateName() != "" {
		return o.GetGenerateName() + strings.Repeat("x", generatedSuffix)
	}
	return o.GetName()
}

// role appends a role and returns it. The pointer is valid until the next call. The main container is the first one
// unless the kind changes it.
func (c *conversion) role(role string, replicas *int32, template *corev1.PodTemplateSpec) *engine.Role {
	n := replicasOf(replicas)
	if n < 0 {
		n, c.badCount = 0, true
	}
	c.uninterpretable = c.uninterpretable || role == "" || roleOf(c.job, role) != nil || len(template.Spec.Containers) == 0
	c.job.Roles = append(c.job.Roles, engine.Role{Type: role, Replicas: n, Template: template})
	return &c.job.Roles[len(c.job.Roles)-1]
}

func replicasOf(n *int32) int {
	if n == nil {
		return 1
	}
	return int(*n)
}

// maxReplicas is the largest number of replicas that a job can have under any limits. It bounds the memory for the
// conversion of finish rules.
const maxReplicas = 10_000_000

// counted checks the numbers of replicas after all roles have been appended. It reports whether no number is negative
// and the total is small enough to handle each replica. If not, or if the total is 0, the conversion is
// uninterpretable.
func (c *conversion) counted() bool {
	total := c.job.Replicas()
	sane := !c.badCount && total <= maxReplicas
	c.uninterpretable = c.uninterpretable || !sane || total == 0
	return sane
}

// cleanUp converts the clean-up policy and the TTL in seconds.
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

// minPriority and maxPriority bound a job's priority.
const minPriority, maxPriority = 0, 100

// scheduler converts the scheduling policy. The roles and elastic scaling must have been converted.
func (c *conversion) scheduler(p *batch.SchedulePolicy) {
	if p == nil || p.T9kScheduler == nil {
		return
	}
	s := p.T9kScheduler
	g := &engine.Gang{Queue: s.Queue, MinMember: int32(min(c.job.Replicas(), math.MaxInt32)), ByRole: true}
	if e := c.job.Elastic; e != nil { // any role may have fewer replicas than its share
		g.MinMember, g.ByRole = int32(min(e.Min, math.MaxInt32)), false
	}
	g.Priority = min(max(orZero(s.Priority), minPriority), maxPriority)
	c.job.Gang = g
}

// roleOf returns the job's role with the given name; nil if there is none.
func roleOf(job *engine.Job, role string) *engine.Role {
	if i := roleIndex(job, role); i >= 0 {
		return &job.Roles[i]
	}
	return nil
}

// roleIndex returns the index of the job's role with the given name; -1 if there is none.
func roleIndex(job *engine.Job, role string) int {
	return slices.IndexFunc(job.Roles, func(r engine.Role) bool { return r.Type == role })
}

// sortedKeys returns the keys of a map in order, so that messages do not change between calls.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}
