package core

import (
	"cmp"
	"fmt"
	"slices"
)

// need is the number of pods that a group still needs for its minimum. roles is how many of these pods each role must
// provide.
type need struct {
	total int
	roles map[string]int
}

// ofRoles returns how many pods of the total the minimums of roles require.
func (n *need) ofRoles() int {
	sum := 0
	for _, v := range n.roles {
		sum += v
	}
	return sum
}

// accepts reports whether one more pod of the role counts towards the need.
func (n *need) accepts(role string) bool { return n.roles[role] > 0 || n.total > n.ofRoles() }

// subtract removes a pod of the role from the need.
func (n *need) subtract(role string) {
	n.total--
	if n.roles[role] > 0 {
		n.roles[role]--
	}
}

func (n need) clone() need {
	c := need{total: n.total, roles: map[string]int{}}
	for role, v := range n.roles {
		c.roles[role] = v
	}
	return c
}

// lacks returns the need of a group. Pods that hold room and stay count towards the minimum, and so do pods that have
// finished.
func (r *round) lacks(g *Group) need {
	have, n := map[string]int{}, need{total: g.Min, roles: map[string]int{}}
	for role, v := range g.Finished {
		have[role] += v
		n.total -= v
	}
	for _, p := range g.Pods {
		if r.stays(p) {
			have[p.Role]++
			n.total--
		}
	}
	for role, v := range g.Roles {
		if lack := v - have[role]; lack > 0 {
			n.roles[role] = lack
		}
	}
	n.total = max(n.total, n.ofRoles(), 0)
	return n
}

// node returns the node of a pod, including the node on which this round has placed it.
func (r *round) node(p *Pod) string {
	if p.Node != "" {
		return p.Node
	}
	return r.at[p]
}

// stays reports whether a pod holds room and is neither being deleted, nor evicted by this round, nor only reserved.
func (r *round) stays(p *Pod) bool {
	return r.node(p) != "" && !p.Ending && !r.evicted[p] && !r.reserved[p]
}

// waits reports whether a pod has no node yet and is not being deleted.
func (r *round) waits(p *Pod) bool { return r.node(p) == "" && !p.Ending }

// started reports whether a group has pods that have finished, or that have a node and stay.
func (r *round) started(g *Group) bool {
	return len(g.Finished) > 0 || slices.ContainsFunc(g.Pods, r.stays)
}

// candidates lists the waiting pods, the largest first. Among pods of one size, pods of the role with the most waiting
// pods come first, and then the oldest pods. The pods that are easiest to place come last and fill the remaining room.
func (r *round) candidates(g *Group) []*Pod {
	var all []*Pod
	members := map[string]int{}
	for _, p := range g.Pods {
		if r.waits(p) {
			all = append(all, p)
			members[p.Role]++
		}
	}
	slices.SortStableFunc(all, func(a, b *Pod) int {
		return cmp.Or(compareSize(b.Requests, a.Requests), cmp.Compare(members[b.Role], members[a.Role]), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// compareSize compares two requests in the alphabetical order of resources. The first difference decides.
func compareSize(a, b Resources) int {
	names := sortedKeys(a)
	for name := range b {
		if _, ok := a[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if c := cmp.Compare(a[name], b[name]); c != 0 {
			return c
		}
	}
	return 0
}

// missing returns a message if pods are too few for the need, and an empty string otherwise.
func (n need) missing(g *Group, pods []*Pod) string {
	have := map[string]int{}
	for _, p := range pods {
		have[p.Role]++
	}
	for _, role := range sortedKeys(n.roles) {
		if lack := n.roles[role] - have[role]; lack > 0 {
			return fmt.Sprintf("%d of the %d pods of role %s that it needs do not exist yet", lack, g.Roles[role], role)
		}
	}
	if lack := n.total - len(pods); lack > 0 {
		return fmt.Sprintf("%d of the %d pods that it needs do not exist yet", lack, max(g.Min, n.total))
	}
	return ""
}

// minimum returns the sum of the requests of the pods that the round tries first, as many as are needed.
func (n need) minimum(pods []*Pod) Resources {
	sum, left := Resources{}, n.clone()
	for _, p := range pods {
		if left.total > 0 && left.accepts(p.Role) {
			sum.add(p.Requests, 1)
			left.subtract(p.Role)
		}
	}
	return sum
}
