package kinds

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// lowering gathers the normal form of a job and all that is wrong with the job. Its methods lower what kinds have in common;
// each refuses what admission can know to be wrong, and says how to mend it. The normal form stays the best that can be made of
// the object: of what is out of bounds, the bound.
type lowering struct {
	opts Options
	job  *engine.Job
	errs field.ErrorList

	// namePath is that of the field that names the job.
	namePath *field.Path
	// specPaths holds the path of each role's entry in replicaSpecs.
	specPaths []*field.Path
	// debugPaths and resumePaths hold the path of each role's entry in runMode, where it has one.
	debugPaths, resumePaths map[int]*field.Path
	// badCount is true where the number of a role's replicas means nothing.
	badCount bool
	// senseless is true where the normal form is not what the object asks for, because something in it means nothing.
	senseless bool
	// expanders replace the variables of each role's pods, where it has any.
	expanders map[int]expander
	// addedEnv is the memory that each role's added environment takes, sizeNote what else to say of sizes.
	addedEnv map[int]int
	sizeNote string
	// ruleMembers counts the replicas that the finish rules name.
	ruleMembers int
}

func newLowering(o Object, kind string, opts Options) *lowering {
	opts = opts.withDefaults()
	l := &lowering{opts: opts, job: &engine.Job{
		APIVersion:    batch.GroupVersion.String(),
		Kind:          kind,
		Namespace:     o.GetNamespace(),
		Name:          o.GetName(),
		UID:           o.GetUID(),
		Generation:    o.GetGeneration(),
		Deleting:      o.GetDeletionTimestamp() != nil,
		ClusterDomain: opts.ClusterDomain,
		RequestedBy:   o.GetAnnotations()[scheduling.AnnotationRequestedBy],
	}}
	l.jobName(o)
	return l
}

// Lower turns an object into the normal form, or says all that is wrong with it.
func (k Kind) Lower(o Object, opts Options) (*engine.Job, field.ErrorList) {
	l := k.lower(o, opts)
	if l == nil {
		return nil, wrongType(o, k.Name)
	}
	if faults := l.faults(); len(faults) > 0 {
		return nil, faults
	}
	return l.job, nil
}

// Convert turns an object that the API server has accepted into the normal form, whatever Lower finds wrong with it by now: a
// limit may have been lowered, or a release be stricter. A job that has begun, as its status says, is carried on. One that has
// not, or of which no sense can be made, is Invalid.
func (k Kind) Convert(o Object, opts Options) *engine.Job {
	l := k.lower(o, opts)
	faults := l.faults()
	if len(faults) == 0 || k.Status(o).StartTime != nil && !l.senseless {
		return l.job
	}
	j := l.job
	return &engine.Job{APIVersion: j.APIVersion, Kind: j.Kind, Namespace: j.Namespace, Name: j.Name, UID: j.UID, Generation: j.Generation,
		Deleting: j.Deleting, CleanUp: j.CleanUp, TTL: j.TTL, ClusterDomain: j.ClusterDomain, Invalid: faults.ToAggregate().Error()}
}

// maxFaults is the number of faults that are told of a job at most: they go into a condition's message.
const maxFaults = 20

// faults lists what is wrong.
func (l *lowering) faults() field.ErrorList {
	l.limitSizes()
	if n := len(l.errs); n > maxFaults {
		l.errs = l.errs[:maxFaults]
		l.invalid(field.NewPath("spec"), fmt.Sprintf("%d faults", n), fmt.Sprintf("the first %d are listed: mend these", maxFaults))
	}
	return l.errs
}

func (l *lowering) invalid(path *field.Path, value any, detail string) {
	l.errs = append(l.errs, field.Invalid(path, value, detail))
}

func (l *lowering) required(path *field.Path, detail string) {
	l.errs = append(l.errs, field.Required(path, detail))
}

// The longest lists that the CRDs allow.
const (
	maxRoles = 32
	maxRules = 1000
	maxPorts = 100
)

// atMost refuses a list that the CRD has no room for.
func (l *lowering) atMost(limit, n int, what string, path *field.Path) {
	if n > limit {
		l.invalid(path, n, fmt.Sprintf("%d %s are too many: list at most %d", n, what, limit))
	}
}

// role appends a role. Its main container is the first; kinds that know better change that.
func (l *lowering) role(role string, replicas *int32, template *corev1.PodTemplateSpec, path *field.Path) {
	l.roleName(role, path.Child("type"))
	n := replicasOf(replicas)
	if n < 0 {
		l.invalid(path.Child("replicas"), n, "a number of replicas is 0 or more: leave replicas out for 1")
		n, l.badCount = 0, true
	}
	l.template(template, path.Child("template"))
	l.specPaths = append(l.specPaths, path)
	l.job.Roles = append(l.job.Roles, engine.Role{Type: role, Replicas: n, Template: template})
}

func replicasOf(n *int32) int {
	if n == nil {
		return 1
	}
	return int(*n)
}

// maxConverted is the largest number of replicas of a job that is carried on although it is beyond the limit. It bounds memory.
const maxConverted = 100_000

// replicas checks the number of replicas and their names once all roles are there. It returns whether the number makes sense,
// so that one can speak of each replica.
func (l *lowering) replicas(path *field.Path) bool {
	if len(l.job.Roles) == 0 {
		l.required(path, "a job has at least one role: add an entry with type and template")
		l.senseless = true
		return true
	}
	l.atMost(maxRoles, len(l.job.Roles), "roles", path)
	l.replicaNames()
	total := 0
	for i := range l.job.Roles {
		total += min(l.job.Roles[i].Replicas, math.MaxInt32)
	}
	switch {
	case l.badCount:
		l.senseless = true
		return false
	case total == 0:
		l.invalid(path, total, "a job has at least one replica: give one of the roles replicas of 1 or more")
		l.senseless = true
	case total > l.opts.MaxReplicas:
		l.invalid(path, total, fmt.Sprintf("the job asks for %d replicas over all roles, and the limit is %d: ask for fewer, or have "+
			"the operator's limit raised", total, l.opts.MaxReplicas))
		l.senseless = l.senseless || total > maxConverted
	}
	return total <= max(maxConverted, l.opts.MaxReplicas)
}

// cleanUp lowers what happens to the pods and to the job after the end.
func (l *lowering) cleanUp(policy batch.CleanUpPolicy, ttl *int32, parent *field.Path) {
	switch policy {
	case "":
		policy = batch.CleanUpNone
	case batch.CleanUpNone, batch.CleanUpUnfinished, batch.CleanUpAll:
	default:
		l.unsupported(parent.Child("cleanUpPolicy"), policy, batch.CleanUpNone, batch.CleanUpUnfinished, batch.CleanUpAll)
		policy = batch.CleanUpNone
	}
	l.job.CleanUp = policy
	if ttl != nil && *ttl < 0 {
		l.invalid(parent.Child("ttlSecondsAfterFinished"), *ttl, "a time in seconds is 0 or more: leave it out to keep the job for ever")
		ttl = nil
	}
	l.job.TTL = seconds(ttl)
}

// scheduler lowers the choice of the scheduler, and holds the templates to it. It needs the roles.
func (l *lowering) scheduler(p *batch.SchedulePolicy, path *field.Path) {
	defer l.reserved()
	if p == nil || p.T9kScheduler == nil {
		return
	}
	s, path := p.T9kScheduler, path.Child("t9kScheduler")
	l.queueName(s.Queue, path.Child("queue"))
	g := &engine.Gang{Queue: s.Queue, MinMember: int32(min(l.job.Replicas(), math.MaxInt32)), ByRole: true}
	if e := l.job.Elastic; e != nil { // any of the roles may be short of its share
		g.MinMember, g.ByRole = int32(min(e.Min, math.MaxInt32)), false
	}
	if s.Priority != nil {
		g.Priority = *s.Priority
	}
	if g.Priority < 0 || g.Priority > 100 {
		l.invalid(path.Child("priority"), g.Priority, "a priority is a number from 0 to 100, the highest first: choose one of these")
		g.Priority = min(max(g.Priority, 0), 100)
	}
	l.job.Gang = g
}

// service lowers the job's Service.
func (l *lowering) service(s *batch.ServiceOption, path *field.Path) {
	if s == nil {
		return
	}
	l.servicePorts(s.Ports, path.Child("ports"))
	l.job.Service = &engine.Service{Ports: s.Ports}
}

// roleIndex finds a role of the job by its name; -1 stands for none.
func (l *lowering) roleIndex(name string) int {
	return slices.IndexFunc(l.job.Roles, func(r engine.Role) bool { return r.Type == name })
}

// sortedKeys lists the keys of a map in order, for messages that do not change from one call to the next.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}

func wrongType(o Object, kind string) field.ErrorList {
	return field.ErrorList{field.InternalError(nil, fmt.Errorf("%T is not a %s", o, kind))}
}

// unsupported refuses a value outside a fixed set.
func (l *lowering) unsupported(path *field.Path, value any, valid ...any) {
	names := make([]string, len(valid))
	for i, v := range valid {
		names[i] = fmt.Sprint(v)
	}
	l.invalid(path, value, "not a choice here: write one of "+strings.Join(names, ", ")+", or leave it out for the default")
}
