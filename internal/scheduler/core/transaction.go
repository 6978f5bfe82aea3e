package core

// step is the placement of a pod on a node, or its removal if put is false. rollback undoes the steps in the log.
type step struct {
	group *Group
	pod   *Pod
	node  string
	put   bool
}

// mark returns the point in the log to which rollback can return.
func (r *round) mark() int { return len(r.log) }

// rollback undoes all steps since mark, the last one first.
func (r *round) rollback(mark int) {
	for i := len(r.log) - 1; i >= mark; i-- {
		s := r.log[i]
		s.put = !s.put
		r.apply(s)
	}
	r.log = r.log[:mark]
}

func (r *round) apply(s step) {
	if s.put {
		r.Nodes.Put(s.pod, s.node)
	} else {
		r.Nodes.Take(s.pod, s.node)
	}
	r.account(s)
}

// account applies a step to the use of the queues and to the positions of pods.
func (r *round) account(s step) {
	used := r.used[s.group.Queue]
	if used == nil {
		used = Resources{}
		r.used[s.group.Queue] = used
	}
	if s.put {
		used.add(s.pod.Requests, 1)
	} else {
		used.add(s.pod.Requests, -1)
	}
	if s.pod.Node != "" {
		return
	}
	if s.put {
		r.at[s.pod] = s.node
	} else {
		delete(r.at, s.pod)
	}
}

func (r *round) put(g *Group, p *Pod, node string) {
	s := step{g, p, node, true}
	r.apply(s)
	r.log = append(r.log, s)
}

func (r *round) take(g *Group, p *Pod, node string) {
	s := step{g, p, node, false}
	r.apply(s)
	r.log = append(r.log, s)
}

// place puts a pod on the best node that among allows, if the quota of its queue allows it. It returns nil if it placed
// the pod. In a simulation, a refusal for lack of room has no message.
func (r *round) place(g *Group, p *Pod, among func(string) bool) *refusal {
	q := r.Queues[g.Queue]
	if len(q.exceeds(r.used[g.Queue], p.Requests)) > 0 {
		return &refusal{QuotaExceeded, q.quotaMessage(r.used[g.Queue], p.Requests, amount)}
	}
	node, why := r.Nodes.Place(p, among)
	if node == "" {
		no := &refusal{reason: NoRoom}
		if !r.simulating { // a simulation does not use the message, which takes time to compose
			no.message = why()
		}
		return no
	}
	s := step{g, p, node, true}
	r.account(s)
	r.log = append(r.log, s)
	return nil
}

// planned returns the pods of a group that this transaction has placed and that are neither bound nor reserved.
func (r *round) planned(g *Group) []Placement {
	var all []Placement
	for _, p := range g.Pods {
		if node := r.at[p]; node != "" && !r.reserved[p] && !r.bound[p] {
			all = append(all, Placement{p, node})
		}
	}
	return all
}
