package engine

import (
	"slices"
)

// switches reports whether a user's change of the run mode or of the number of replicas takes effect in this pass.
func (p *pass) switches() bool {
	if p.finished || p.old.RunMode == "" {
		return false
	}
	return p.mode != p.old.RunMode || slices.ContainsFunc(p.Roles, func(r Role) bool {
		t := p.oldTask(r.Type)
		return r.Replicas != len(t.Replicas)+int(t.OmittedReplicas)
	})
}

// beforeDebug returns the pass to act on when the job switches to debug mode. It first evaluates the job in its
// previous mode. If pods that have already ended decide the job, their result stands, although debug mode would discard
// it.
func (p *pass) beforeDebug() *pass {
	before := &pass{Job: p.Job, rejected: p.rejected, seen: p.seen, cfg: p.cfg, old: p.old, mode: p.old.RunMode}
	before.evaluate()
	if before.verdict.over() || before.plan.Contested || before.plan.Refresh {
		return before
	}
	return p
}
