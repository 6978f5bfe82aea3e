package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// impossible returns a refusal if the group cannot start even when nothing else runs. The message names what is short
// and the smallest change that helps. impossible returns nil if the group can start or if this is not known. It checks
// the quota of the queue and the room of empty nodes.
func (r *round) impossible(g *Group, n need, pods []*Pod) *refusal {
	if message := r.Queues[g.Queue].tooSmall(n.least(pods)); message != "" {
		return &refusal{Impossible, message}
	}
	if r.Sites == nil {
		return nil
	}
	if message := r.unplaceable(g, n, r.counted(pods)); message != "" {
		return &refusal{Impossible, message}
	}
	return nil
}

// tooSmall returns a message if needs exceed the quota of the queue although nothing else uses it, so that waiting
// cannot help. It returns an empty string otherwise.
func (q *Queue) tooSmall(needs Resources) string {
	var short, raise []string
	for _, name := range q.exceeds(Resources{}, needs) {
		limit, v := q.Quota[name], needs[name]
		short = append(short, fmt.Sprintf("%s %s needed, %s in the quota, %s short", amount(name, v), name, amount(name, limit), amount(name, v-limit)))
		raise = append(raise, amount(name, v)+" "+name)
	}
	if len(short) == 0 {
		return ""
	}
	return fmt.Sprintf("the quota of queue %s is too small for it even when nothing else runs: %s; raise the quota to %s, or request less",
		q.Name, strings.Join(short, "; "), strings.Join(raise, ", "))
}

// counted returns the pods without their requests for the resources that Uncounted reports, because it is not known
// whether nodes have these resources. The given pods stay as they are.
func (r *round) counted(pods []*Pod) []*Pod {
	if r.Uncounted == nil {
		return pods
	}
	all := slices.Clone(pods)
	for i, p := range all {
		for name := range p.Requests {
			if r.Uncounted(name) {
				o := *p
				o.Requests = Resources{}
				for name, v := range p.Requests {
					if !r.Uncounted(name) {
						o.Requests[name] = v
					}
				}
				all[i] = &o
				break
			}
		}
	}
	return all
}

// unplaceable returns a message if the minimum of the group does not fit on the nodes even when they are empty, and an
// empty string otherwise.
func (r *round) unplaceable(g *Group, n need, pods []*Pod) string {
	sites := func(p *Pod) *Sites { return r.Sites(g, p) }
	message := n.unplaceable(pods, sites)
	if message != "" || g.Topology != Required {
		return message
	}
	if len(r.Domains) == 0 {
		return "its topologyPolicy is Required, and no node has a topology domain: label the nodes, or set topologyLabel in the scheduler's configuration"
	}
	for _, domain := range r.Domains {
		within := map[*Sites]*Sites{}
		if n.unplaceable(pods, func(p *Pod) *Sites {
			s := sites(p)
			if within[s] == nil {
				within[s] = s.inDomain(domain)
			}
			return within[s]
		}) == "" {
			return ""
		}
	}
	return fmt.Sprintf("its topologyPolicy is Required, and none of the %s takes all of it even when empty: start fewer pods, or let it spread (BestEffort)",
		count(len(r.Domains), "topology domain"))
}

// podClass is a set of pods with equal requests and the same sites. fit is the largest number of them that the sites
// can hold.
type podClass struct {
	sites *Sites
	pods  []*Pod
	fit   int
}

// unplaceable returns a message if the sites cannot hold the needed number of pods. It does not combine pods of
// different sizes on one node, so an empty result does not mean that the pods fit.
func (n need) unplaceable(pods []*Pod, sites func(*Pod) *Sites) string {
	var alike []*podClass
	var fitting []*Pod
	var misfit *Pod
	for _, p := range pods {
		s := sites(p)
		i := slices.IndexFunc(alike, func(k *podClass) bool { return k.sites == s && compareSize(k.pods[0].Requests, p.Requests) == 0 })
		if i < 0 {
			alike, i = append(alike, &podClass{sites: s, fit: s.fit(p.Requests)}), len(alike)
		}
		alike[i].pods = append(alike[i].pods, p)
		if alike[i].fit > 0 {
			fitting = append(fitting, p)
		} else if misfit == nil {
			misfit = p
		}
	}
	if misfit != nil && n.short(fitting) {
		return sites(misfit).noNodeFor(misfit)
	}
	for _, k := range alike {
		if least := n.atLeast(k.pods, fitting); k.fit > 0 && k.fit < least {
			return k.tooMany(least)
		}
	}
	return n.tooMuch(fitting, sites)
}

// short reports whether the pods are too few for the need.
func (n need) short(pods []*Pod) bool {
	left := n.clone()
	for _, p := range pods {
		if left.total > 0 && left.accepts(p.Role) {
			left.subtract(p.Role)
		}
	}
	return left.total > 0
}

// atLeast returns a lower bound: every choice of the needed pods from all contains at least this many pods of some,
// which is a subset of all.
func (n need) atLeast(some, all []*Pod) int {
	have, mine := map[string]int{}, map[string]int{}
	for _, p := range all {
		have[p.Role]++
	}
	for _, p := range some {
		mine[p.Role]++
	}
	least := 0
	for role, v := range n.roles {
		least += max(0, v-(have[role]-mine[role]))
	}
	return max(least, n.total-(len(all)-len(some)))
}

// least returns a lower bound of the requests of the needed pods: for each resource, the smallest sum over all choices
// of pods.
func (n need) least(pods []*Pod) Resources {
	sum := Resources{}
	names := map[string]bool{}
	for _, p := range pods {
		for name := range p.Requests {
			names[name] = true
		}
	}
	for name := range names {
		sum[name] = n.leastOf(name, pods)
	}
	return sum
}

// leastOf returns the lower bound for one resource. For each role, it takes the smallest pods that the role's minimum
// requires, and then the smallest of all other pods.
func (n need) leastOf(name string, pods []*Pod) int64 {
	pods = slices.SortedStableFunc(slices.Values(pods), func(a, b *Pod) int { return cmp.Compare(a.Requests[name], b.Requests[name]) })
	must, left, sum := n.clone().roles, n.total-n.ofRoles(), int64(0)
	for _, p := range pods {
		if must[p.Role] > 0 {
			must[p.Role]--
			sum += p.Requests[name]
		} else if left > 0 {
			left--
			sum += p.Requests[name]
		}
	}
	return sum
}

// noNodeFor returns the message for a pod that fits on no site.
func (s *Sites) noNodeFor(p *Pod) string {
	if len(s.sites) == 0 {
		return cmp.Or(s.lack, "there is no node for its pods: add one")
	}
	message := fmt.Sprintf("pod %s is too large for every node that it may use: the one that comes closest has %s; request less, or add a larger node",
		p.Name, s.closest(p.Requests))
	if s.lack != "" {
		message += ". Other nodes do not count: " + s.lack
	}
	return message
}

// tooMany returns the message for a class whose sites can hold fewer pods than must start together. least is the number
// of its pods that must start together.
func (k *podClass) tooMany(least int) string {
	var each []string
	for _, name := range sortedKeys(k.pods[0].Requests) {
		each = append(each, amount(name, k.pods[0].Requests[name])+" "+name)
	}
	message := fmt.Sprintf("even on empty nodes, only %d of the %d pods that must start together fit, and each requests %s: %d short; add nodes for %s more, or start fewer",
		k.fit, least, strings.Join(each, ", "), least-k.fit, count(least-k.fit, "pod"))
	if k.sites.lack != "" {
		message += ". Other nodes do not count: " + k.sites.lack
	}
	return message
}

// tooMuch returns a message if the needed pods that may use the same sites request more of a resource than these sites
// together have, and an empty string otherwise.
func (n need) tooMuch(pods []*Pod, sites func(*Pod) *Sites) string {
	bySites := map[*Sites][]*Pod{}
	var order []*Sites
	for _, p := range pods {
		s := sites(p)
		if bySites[s] == nil {
			order = append(order, s)
		}
		bySites[s] = append(bySites[s], p)
	}
	for _, s := range order {
		some := bySites[s]
		part := need{total: n.atLeast(some, pods)}
		if len(order) == 1 {
			part = n
		}
		sum := part.least(some)
		for _, name := range sortedKeys(sum) {
			if v := sum[name]; v > s.total[name] {
				return fmt.Sprintf("the pods that must start together request %s %s and all nodes that they may use have %s, %s short; add nodes, or start fewer pods",
					amount(name, v), name, amount(name, s.total[name]), amount(name, v-s.total[name]))
			}
		}
	}
	return ""
}
