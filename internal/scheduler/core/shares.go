package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// add adds sign times o to r.
func (r Resources) add(o Resources, sign int64) {
	for name, v := range o {
		r[name] += sign * v
	}
}

// Share returns the dominant share of a queue with this use: the largest ratio of use to quota, or to capacity for a
// resource without a quota. If the queue uses a resource whose quota or capacity is 0, its share of that resource is 1.
func (q *Queue) Share(used Resources) float64 {
	share := 0.0
	for name, v := range used {
		of, ok := q.Quota[name]
		if !ok {
			of = q.Capacity[name]
		}
		switch {
		case v <= 0:
		case of <= 0:
			share = max(share, 1)
		default:
			share = max(share, float64(v)/float64(of))
		}
	}
	return share
}

// exceeds names the resources in which used and more together exceed the quota. Resources that more does not request
// are left out.
func (q *Queue) exceeds(used, more Resources) []string {
	var names []string
	for name, limit := range q.Quota {
		if more[name] > 0 && used[name]+more[name] > limit {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// quotaMessage returns the message for requests that exceed the quota.
func (q *Queue) quotaMessage(used, more Resources, format func(resource string, v int64) string) string {
	var parts []string
	for _, name := range q.exceeds(used, more) {
		parts = append(parts, fmt.Sprintf("%s %s needed, %s of %s left", format(name, more[name]), name,
			format(name, max(0, q.Quota[name]-used[name])), format(name, q.Quota[name])))
	}
	return fmt.Sprintf("the quota of queue %s does not allow it: %s", q.Name, strings.Join(parts, "; "))
}

// amount formats a quantity of a resource: CPU in cores or millicores, memory in Mi if it is a whole number of Mi, and
// everything else as a plain number.
func amount(resource string, v int64) string {
	if resource != "cpu" || v%1000 == 0 {
		if resource == "cpu" {
			v /= 1000
		}
		if resource == "memory" && v%(1<<20) == 0 {
			return fmt.Sprintf("%dMi", v>>20)
		}
		return fmt.Sprint(v)
	}
	return fmt.Sprintf("%dm", v)
}

// used returns the sum of the requests of pods with a node, by queue.
func used(groups []*Group) map[string]Resources {
	sums := map[string]Resources{}
	for _, g := range groups {
		if sums[g.Queue] == nil {
			sums[g.Queue] = Resources{}
		}
		for _, p := range g.Pods {
			if p.Node != "" {
				sums[g.Queue].add(p.Requests, 1)
			}
		}
	}
	return sums
}

// usedNow returns the sum of the requests of pods with a node, by queue. The round may change the result.
func (c *Cluster) usedNow() map[string]Resources {
	if c.Used == nil {
		return used(c.Groups)
	}
	sums := make(map[string]Resources, len(c.Used))
	for name, r := range c.Used {
		sums[name] = maps.Clone(r)
	}
	return sums
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
