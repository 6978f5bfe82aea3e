package kinds

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// genericJob is the kind whose fields correspond directly to engine.Job.
var genericJob = Kind{
	Name:           "GenericJob",
	Plural:         "genericjobs",
	ShortName:      "gj",
	New:            func() Object { return &batch.GenericJob{} },
	NewList:        func() runtime.Object { return &batch.GenericJobList{} },
	convert:        convertGeneric,
	validate:       validateGeneric,
	validateUpdate: validateGenericUpdate,
	schema: schema{
		kept: append([]keptField{{"successRules", "[]"}, {"failureRules", "[]"}, {"service", anObject}}, jobKept...),
		roleKept: []keptField{{"replicas", ""}, {"restartPolicy.policy", "'OnFailure'"}, {"restartPolicy.scope", "'Replica'"},
			{"restartPolicy.exitCodes.restart", "[]"}, {"restartPolicy.exitCodes.fail", "[]"}, {"template", ""}},
	},
	Status: func(o Object) *batch.JobStatus { return &o.(*batch.GenericJob).Status.JobStatus },
}

func convertGeneric(o Object, c *conversion) {
	spec := &o.(*batch.GenericJob).Spec
	c.service(spec.Service)
	for i := range spec.ReplicaSpecs {
		rs := &spec.ReplicaSpecs[i]
		c.role(rs.Type, rs.Replicas, &rs.Template).Restart = convertRestart(rs.RestartPolicy)
	}
	sane := c.counted()
	c.cleanUp(spec.CleanUpPolicy, spec.TTLSecondsAfterFinished)
	c.runMode(spec.RunMode)
	c.scheduler(spec.Scheduler)
	c.variables()
	if sane {
		rules := ruleReader{job: c.job}
		c.job.Success = c.rules(&rules, spec.SuccessRules)
		c.job.Failure = c.rules(&rules, spec.FailureRules)
	}
}

func validateGeneric(o Object, v *validator) {
	spec, path := &o.(*batch.GenericJob).Spec, field.NewPath("spec")
	v.service(spec.Service, path.Child("service"))
	for i := range spec.ReplicaSpecs {
		rs, at := &spec.ReplicaSpecs[i], path.Child("replicaSpecs").Index(i)
		v.role(rs.Replicas, &rs.Template, at)
		v.restart(rs.RestartPolicy, at.Child("restartPolicy"))
	}
	sane := v.replicas(path.Child("replicaSpecs"))
	v.cleanUp(spec.CleanUpPolicy, spec.TTLSecondsAfterFinished, path)
	v.runMode(spec.RunMode, path.Child("runMode"))
	v.scheduler(spec.Scheduler, path.Child("scheduler"))
	v.variables()
	if sane {
		rules := ruleReader{job: v.job}
		v.rules(&rules, spec.SuccessRules, path.Child("successRules"))
		v.rules(&rules, spec.FailureRules, path.Child("failureRules"))
	}
}

// service converts the job's Service.
func (c *conversion) service(s *batch.ServiceOption) {
	if s != nil {
		c.job.Service = &engine.Service{Ports: s.Ports}
	}
}

func (v *validator) service(s *batch.ServiceOption, path *field.Path) {
	if s != nil {
		v.servicePorts(s.Ports, path.Child("ports"))
	}
}

// convertRestart converts a restart policy of GenericJob. Its limit applies to each replica; by default it is 0, or
// none for policy Always.
func convertRestart(p *batch.RestartPolicy) engine.Restart {
	if p == nil {
		p = &batch.RestartPolicy{}
	}
	r := engine.Restart{Limit: p.Limit, All: restartsAll(p.Scope)}
	if r.Limit != nil && *r.Limit < 0 {
		r.Limit = new(int32)
	}
	if p.ExitCodes != nil {
		r.RestartCodes, _ = readCodes(p.ExitCodes.Restart, nil)
		r.FailCodes, _ = readCodes(p.ExitCodes.Fail, nil)
	}
	switch restartPolicy(p) {
	case batch.RestartAlways:
		r.OnSuccess, r.OnFailure = true, true
	case batch.RestartOnFailure:
		r.OnFailure = true
	}
	if r.Limit == nil && !r.OnSuccess && (r.OnFailure || len(r.RestartCodes) > 0) {
		r.Limit = new(int32)
	}
	return r
}

// restart validates a restart policy of GenericJob.
func (v *validator) restart(p *batch.RestartPolicy, path *field.Path) {
	if p == nil {
		return
	}
	if p.Limit != nil && *p.Limit < 0 {
		v.invalid(path.Child("limit"), *p.Limit, "a number of restarts is 0 or more: leave limit out for the default")
	}
	v.restartScope(p.Scope, path.Child("scope"))
	if p.ExitCodes != nil {
		v.exitCodes(p.ExitCodes, path.Child("exitCodes"))
	}
	if policies := []batch.RestartPolicyType{batch.RestartAlways, batch.RestartOnFailure, batch.RestartNever}; !slices.Contains(policies, restartPolicy(p)) {
		unsupported(v, path.Child("policy"), p.Policy, policies...)
	}
}

func restartPolicy(p *batch.RestartPolicy) batch.RestartPolicyType {
	if p == nil || p.Policy == "" {
		return batch.RestartOnFailure
	}
	return p.Policy
}

func validateGenericUpdate(updated, old Object, c *changes) {
	u, o := updated.(*batch.GenericJob), old.(*batch.GenericJob)
	path := field.NewPath("spec")
	c.keep(path.Child("successRules"), u.Spec.SuccessRules, o.Spec.SuccessRules)
	c.keep(path.Child("failureRules"), u.Spec.FailureRules, o.Spec.FailureRules)
	c.keep(path.Child("service"), u.Spec.Service, o.Spec.Service)
	c.runMode(path.Child("runMode"), u.Spec.RunMode, o.Spec.RunMode)
	c.scheduler(path.Child("scheduler"), u.Spec.Scheduler, o.Spec.Scheduler)

	specs := path.Child("replicaSpecs")
	if !sameRoles(c, specs, u.Spec.ReplicaSpecs, o.Spec.ReplicaSpecs, func(s *batch.ReplicaSpec) string { return s.Type }) {
		return
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
}
