package kinds

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// genericJob is the kind that has the normal form's own vocabulary.
var genericJob = Kind{
	Name:           "GenericJob",
	Plural:         "genericjobs",
	ShortName:      "gj",
	New:            func() Object { return &batch.GenericJob{} },
	NewList:        func() runtime.Object { return &batch.GenericJobList{} },
	lower:          lowerGeneric,
	ValidateUpdate: validateGenericUpdate,
	Status:         func(o Object) *batch.JobStatus { return &o.(*batch.GenericJob).Status.JobStatus },
}

func lowerGeneric(o Object, opts Options) *lowering {
	g, ok := o.(*batch.GenericJob)
	if !ok || g == nil {
		return nil
	}
	l := newLowering(g, "GenericJob", opts)
	spec, path := &g.Spec, field.NewPath("spec")
	l.service(spec.Service, path.Child("service"))
	for i := range spec.ReplicaSpecs {
		rs, at := &spec.ReplicaSpecs[i], path.Child("replicaSpecs").Index(i)
		l.role(rs.Type, rs.Replicas, &rs.Template, at)
		l.job.Roles[i].Restart = l.restart(rs.RestartPolicy, at.Child("restartPolicy"))
	}
	sane := l.replicas(path.Child("replicaSpecs"))
	l.cleanUp(spec.CleanUpPolicy, spec.TTLSecondsAfterFinished, path)
	l.runMode(spec.RunMode, path.Child("runMode"))
	l.scheduler(spec.Scheduler, path.Child("scheduler"))
	l.variables()
	if sane {
		l.job.Success = l.rules(spec.SuccessRules, path.Child("successRules"))
		l.job.Failure = l.rules(spec.FailureRules, path.Child("failureRules"))
	}
	return l
}

// restart lowers a restart policy of GenericJob, whose limit holds for each replica.
func (l *lowering) restart(p *batch.RestartPolicy, path *field.Path) engine.Restart {
	if p == nil {
		p = &batch.RestartPolicy{}
	}
	if p.Limit != nil && *p.Limit < 0 {
		l.invalid(path.Child("limit"), *p.Limit, "a number of restarts is 0 or more: leave limit out for the default")
		p = &batch.RestartPolicy{Policy: p.Policy, Limit: new(int32)}
	}
	r := engine.Restart{Limit: p.Limit, All: l.restartsAll(p.Scope, path.Child("scope"))}
	if p.ExitCodes != nil {
		r.RestartCodes, r.FailCodes = l.exitCodes(p.ExitCodes, path.Child("exitCodes"))
	}
	switch restartPolicy(p) {
	case batch.RestartNever:
	case batch.RestartAlways:
		r.OnSuccess, r.OnFailure = true, true
	case batch.RestartOnFailure:
		r.OnFailure = true
	default:
		l.unsupported(path.Child("policy"), p.Policy, batch.RestartAlways, batch.RestartOnFailure, batch.RestartNever)
	}
	if r.Limit == nil && !r.OnSuccess && (r.OnFailure || len(r.RestartCodes) > 0) {
		r.Limit = new(int32)
	}
	return r
}

func restartPolicy(p *batch.RestartPolicy) batch.RestartPolicyType {
	if p == nil || p.Policy == "" {
		return batch.RestartOnFailure
	}
	return p.Policy
}

func validateGenericUpdate(updated, old Object) field.ErrorList {
	u, ok := updated.(*batch.GenericJob)
	o, ok2 := old.(*batch.GenericJob)
	if !ok || !ok2 || u == nil || o == nil {
		return wrongType(updated, "GenericJob")
	}
	var c changes
	path := field.NewPath("spec")
	c.keep(path.Child("successRules"), u.Spec.SuccessRules, o.Spec.SuccessRules)
	c.keep(path.Child("failureRules"), u.Spec.FailureRules, o.Spec.FailureRules)
	c.keep(path.Child("service"), u.Spec.Service, o.Spec.Service)
	c.runMode(path.Child("runMode"), u.Spec.RunMode, o.Spec.RunMode)
	c.scheduler(path.Child("scheduler"), u.Spec.Scheduler, o.Spec.Scheduler)

	specs := path.Child("replicaSpecs")
	if !sameRoles(&c, specs, u.Spec.ReplicaSpecs, o.Spec.ReplicaSpecs, func(s *batch.ReplicaSpec) string { return s.Type }) {
		return c.errs
	}
	for i := range u.Spec.ReplicaSpecs {
		a, b, at := &u.Spec.ReplicaSpecs[i], &o.Spec.ReplicaSpecs[i], specs.Index(i)
		c.keep(at.Child("replicas"), replicasOf(a.Replicas), replicasOf(b.Replicas))
		c.keep(at.Child("restartPolicy", "policy"), restartPolicy(a.RestartPolicy), restartPolicy(b.RestartPolicy))
		x, y := orZero(a.RestartPolicy), orZero(b.RestartPolicy)
		c.keep(at.Child("restartPolicy", "scope"), restartScope(x.Scope), restartScope(y.Scope))
		c.keep(at.Child("restartPolicy", "exitCodes"), orZero(x.ExitCodes), orZero(y.ExitCodes))
		c.keep(at.Child("template"), &a.Template, &b.Template)
	}
	return c.errs
}
