package engine

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// keepSize keeps the size of an elastic job unchanged once one of its replicas has succeeded or the job has finished. A
// replica added then would come too late, and a replica removed then might be about to succeed.
func (p *pass) keepSize() {
	if p.Elastic == nil || len(p.old.Tasks) == 0 || !p.finished && !p.anySucceeded() {
		return
	}
	job := *p.Job
	job.Roles = slices.Clone(p.Roles)
	for i := range job.Roles {
		t := p.oldTask(job.Roles[i].Type)
		job.Roles[i].Replicas = len(t.Replicas) + int(max(t.OmittedReplicas, 0))
	}
	if job.Replicas() <= p.Elastic.Max && job.hasDeciders() { // otherwise the operator did not write this status
		p.Job = &job
	}
}

// hasDeciders reports whether the job has every replica that its finish rules name.
func (j *Job) hasDeciders() bool {
	for _, rule := range slices.Concat(j.Success, j.Failure) {
		for _, m := range rule.Members {
			if m.Rank >= j.Roles[m.Role].Replicas {
				return false
			}
		}
	}
	return true
}

// anySucceeded reports whether a replica has succeeded and is not restarted after success. The ends of debug commands
// do not count.
func (p *pass) anySucceeded() bool {
	if p.mode == batch.RunDebug || p.old.RunMode == batch.RunDebug {
		return false
	}
	stays := func(role string) *Role { // returns the role if its successes are final, otherwise nil
		i := slices.IndexFunc(p.Roles, func(r Role) bool { return r.Type == role && !r.Restart.OnSuccess })
		if i < 0 {
			return nil
		}
		return &p.Roles[i]
	}
	for i := range p.old.Tasks {
		t := &p.old.Tasks[i]
		listed := slices.ContainsFunc(t.Replicas, func(r batch.ReplicaStatus) bool { return r.Phase == batch.ReplicaSucceeded })
		omitted := slices.ContainsFunc(t.Omitted, func(o batch.OmittedReplicas) bool { return o.Phase == batch.ReplicaSucceeded })
		if (listed || omitted) && stays(t.Type) != nil {
			return true
		}
	}
	return slices.ContainsFunc(p.seen.Pods, func(pod *corev1.Pod) bool {
		name, _ := p.splitName(pod.Name)
		role := stays(name)
		return role != nil && role.classify(pod) == succeeded && pod.Annotations[batch.AnnotationRunMode] != string(batch.RunDebug)
	})
}
