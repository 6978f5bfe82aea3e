package engine

import (
	"slices"
)

// switches tells whether what people have changed takes effect in this pass: the run mode, or the number of replicas.
func (p *pass) switches() bool {
	if p.finished || p.old.RunMode == "" {
		return false
	}
	return p.mode != p.old.RunMode || slices.ContainsFunc(p.Roles, func(r Role) bool {
		t := p.oldTask(r.Type)
		return r.Replicas != len(t.Replicas)+int(t.OmittedReplicas)
	})
}

// beforeDebug is the pass that a switch to debug mode leads to. What has ended before makes the job end, if it does, before
// the switch makes it worthless.
func (p *pass) beforeDebug() *pass {
	before := &pass{Job: p.Job, rejected: p.rejected, seen: p.seen, cfg: p.cfg, old: p.old, mode: p.old.RunMode}
	before.weigh()
	if before.verdict.over() || before.plan.Contested || before.plan.Refresh {
		return before
	}
	return p
}
