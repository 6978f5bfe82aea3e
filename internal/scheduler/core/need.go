package core

import (
	"cmp"
	"fmt"
	"slices"
)

// need is how many pods a group lacks of its minimum, and how many of these must be of which role.
type need struct {
	total int
	roles map[string]int
}

// ofRoles is how many of the total are set aside for roles.
func (n *need) ofRoles() int {
	sum := 0
	for _, v := range n.roles {
		sum += v
	}
	return sum
}

// takes tells whether a pod of the role counts for what is lacking.
func (n *need) takes(role string) bool { return n.roles[role] > 0 || n.total > n.ofRoles() }

func (n *need) took(role string) {
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

// lacks counts from what holds room and stays, and from what has finished.
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

// node is where a pod is, as far as this round has come.
func (r *round) node(p *Pod) string {
	if p.Node != "" {
		return p.Node
	}
	return r.at[p]
}

// stays tells whether a pod holds room and is not on its way out.
func (r *round) stays(p *Pod) bool {
	return r.node(p) != "" && !p.Ending && !r.leaving[p] && !r.reserved[p]
}

func (r *round) waits(p *Pod) bool { return r.node(p) == "" && !p.Ending }

// started tells whether a group has pods that run or ran.
func (r *round) started(g *Group) bool {
	return len(g.Finished) > 0 || slices.ContainsFunc(g.Pods, r.stays)
}

// candidates are the pods that wait, the largest first and then those of the role with the most, so that what is easy to
// place fills what is left.
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

// compareSize orders by the first resource, in the order of their names, of which one needs more.
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

// missing says of which pods too few exist; empty where there are enough.
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

// minimum sums the requests of the pods that would be tried first.
func (n need) minimum(pods []*Pod) Resources {
	sum, left := Resources{}, n.clone()
	for _, p := range pods {
		if left.total > 0 && left.takes(p.Role) {
			sum.add(p.Requests, 1)
			left.took(p.Role)
		}
	}
	return sum
}
