package engine

import (
	"cmp"
	"slices"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// loadRecords gives each replica its record in the last status. The status is not trusted, because any user who may
// write statuses may have written it: its numbers are bounded, and reading it takes time linear in its length and in
// the number of replicas.
func (p *pass) loadRecords() {
	for i := range p.Roles {
		role, t := p.roles[i], p.oldTask(p.Roles[i].Type)
		for k := range t.Replicas {
			s := &t.Replicas[k]
			if r := p.find(s.Name); r != nil {
				r.past = record{uid: s.UID, phase: s.Phase, restarts: bounded(s.RestartCount), attempt: bounded(s.Attempt),
					backoff: bounded(s.Backoff), incident: bounded(s.Incident), exit: p.Roles[i].recordedExit(s), reason: s.Reason, containers: s.Containers}
			}
		}
		left := len(role) // bounds the work: no replica is omitted twice
		for k := range t.Omitted {
			o := &t.Omitted[k]
			past := record{phase: o.Phase, restarts: bounded(o.RestartCount), attempt: bounded(o.Attempt), backoff: bounded(o.Backoff),
				incident: bounded(o.Incident), exit: o.ExitCode}
			if o.Pods {
				past.uid = omittedUID
			}
			left = EachRank(o.Ranks, left, func(rank int) {
				if rank < len(role) {
					role[rank].past = past
				}
			})
		}
	}
}

// maxCount is the largest count of restarts or pods. It keeps the sum over all roles below 2^31. No job reaches it in
// its lifetime.
const maxCount = 1 << 25

// bounded limits a count that was read from the API server to the range from 0 to maxCount.
func bounded(n int32) int32 { return min(max(n, 0), maxCount) }

// omittedUID stands for the UID of a pod that the status omits. It equals no real UID.
const omittedUID = "-"

// recordedExit returns the exit code of a replica from its status; nil if the status has none.
func (x *Role) recordedExit(s *batch.ReplicaStatus) *int32 {
	var code *int32
	for i := range s.Containers {
		c := s.Containers[i].ExitCode
		if c != nil && x.MainDecides && s.Containers[i].Name == x.mainContainer() {
			return c
		}
		if c != nil && (code == nil || *code == 0) {
			code = c
		}
	}
	return code
}

// tasks returns the status of the replicas by role. If there are more than MaxListed replicas, it lists the most urgent
// ones and summarizes the rest.
func (p *pass) tasks() []batch.Tasks {
	listed := p.listed()
	out := make([]batch.Tasks, len(p.Roles))
	for i := range p.Roles {
		t := &out[i]
		t.Type, t.RestartCount = p.Roles[i].Type, p.restartsOf(i)
		for k := range p.roles[i] {
			r := &p.roles[i][k]
			if listed == nil || listed[r] {
				t.Replicas = append(t.Replicas, r.status())
			} else {
				t.OmittedReplicas++
			}
		}
		if t.OmittedReplicas > 0 {
			t.Omitted = omit(p.roles[i], listed)
		}
	}
	return out
}

// oldTask returns the last status of a role; empty if there is none.
func (p *pass) oldTask(role string) *batch.Tasks {
	for i := range p.old.Tasks {
		if p.old.Tasks[i].Type == role {
			return &p.old.Tasks[i]
		}
	}
	return &batch.Tasks{}
}

// restartsOf returns the number of restarts charged to a role. It includes replicas that were removed when the role was
// scaled down: the last status holds them in its sum.
func (p *pass) restartsOf(role int) int32 {
	sum := int64(bounded(p.oldTask(p.Roles[role].Type).RestartCount))
	for i := range p.roles[role] {
		r := &p.roles[role][i]
		sum += int64(r.restarts - r.past.restarts)
	}
	return int32(min(sum, maxCount))
}

// listed returns the set of replicas that the status lists one by one; nil if it lists all.
func (p *pass) listed() map[*replica]bool {
	if len(p.replicas) <= p.cfg.MaxListed {
		return nil
	}
	order := make([]*replica, len(p.replicas))
	for i := range p.replicas {
		order[i] = &p.replicas[i]
	}
	slices.SortStableFunc(order, func(a, b *replica) int { return cmp.Compare(a.urgency(), b.urgency()) })
	set := make(map[*replica]bool, p.cfg.MaxListed)
	for _, r := range order[:p.cfg.MaxListed] {
		set[r] = true
	}
	return set
}

// urgency returns how urgently a replica needs attention; lower is more urgent.
func (r *replica) urgency() int {
	switch r.phase {
	case batch.ReplicaFailed:
		return 0
	case batch.ReplicaUnknown:
		return 1
	case batch.ReplicaPending:
		return 2
	case batch.ReplicaDeleted, batch.ReplicaCreating:
		return 3
	}
	if r.restarts > 0 {
		return 4
	}
	return 5
}

// omit summarizes the replicas of a role that are not listed.
func omit(role []replica, listed map[*replica]bool) []batch.OmittedReplicas {
	type key struct {
		phase                      batch.ReplicaPhase
		restarts, attempt, backoff int32
		incident, exit             int32
		hasExit, pods              bool
	}
	ranks := map[key][]int{}
	var order []key
	for i := range role {
		r := &role[i]
		if listed[r] {
			continue
		}
		k := key{phase: r.phase, restarts: r.restarts, attempt: r.attempt, backoff: r.backoff, incident: r.incident, pods: r.uid != ""}
		if r.exit != nil {
			k.exit, k.hasExit = *r.exit, true
		}
		if ranks[k] == nil {
			order = append(order, k)
		}
		ranks[k] = append(ranks[k], r.Rank)
	}
	out := make([]batch.OmittedReplicas, 0, len(order))
	for _, k := range order {
		o := batch.OmittedReplicas{Ranks: FormatRanks(ranks[k]), Phase: k.phase, RestartCount: k.restarts,
			Attempt: k.attempt, Backoff: k.backoff, Incident: k.incident, Pods: k.pods}
		if k.hasExit {
			o.ExitCode = &k.exit
		}
		out = append(out, o)
	}
	return out
}

// status returns the status of one replica.
func (r *replica) status() batch.ReplicaStatus {
	s := batch.ReplicaStatus{Name: r.name, UID: r.uid, Phase: r.phase, RestartCount: r.restarts, Attempt: r.attempt,
		Backoff: r.backoff, Incident: r.incident, Reason: r.reason}
	pod := r.shown()
	if pod == nil || r.uid == "" {
		if r.result != notEnded {
			s.Containers = r.past.containers
		}
		return s
	}
	s.NodeName = pod.Spec.NodeName
	cs := pod.Status.ContainerStatuses
	if len(cs) == 0 {
		return s
	}
	s.Containers = make([]batch.ContainerStatus, len(cs))
	for i := range cs {
		c := &s.Containers[i]
		c.Name, c.State = cs[i].Name, batch.ContainerWaiting
		switch {
		case cs[i].State.Terminated != nil:
			c.State, c.ExitCode = batch.ContainerTerminated, &cs[i].State.Terminated.ExitCode
		case cs[i].State.Running != nil:
			c.State = batch.ContainerRunning
		}
		if r.role.MainDecides && c.Name == r.role.mainContainer() {
			// Users read the main container's exit code, so it comes first.
			s.Containers[0], s.Containers[i] = s.Containers[i], s.Containers[0]
		}
	}
	return s
}
