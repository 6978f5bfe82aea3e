package core

import (
	"fmt"
	"slices"
	"strings"
)

// admitted returns the pods whose requests are within the pod limit of the queue. why is the message about the first of
// the other pods; it is empty if there are none.
func (q *Queue) admitted(pods []*Pod) (fit []*Pod, why string) {
	if len(q.PodLimit) == 0 {
		return pods, ""
	}
	fit = make([]*Pod, 0, len(pods))
	for _, p := range pods {
		if over := q.over(p); over == "" {
			fit = append(fit, p)
		} else if why == "" {
			why = fmt.Sprintf("pod %s is too large for queue %s: %s", p.Name, q.Name, over)
		}
	}
	return fit, why
}

// allowed returns the waiting pods whose requesters may use the queue, in the order of candidates. why is the message
// about the first of the other pods; it is empty if there are none.
func (r *round) allowed(g *Group) (pods []*Pod, why string) {
	for _, p := range r.candidates(g) {
		if p.Barred == "" {
			pods = append(pods, p)
		} else if why == "" {
			why = fmt.Sprintf("pod %s: %s", p.Name, p.Barred)
		}
	}
	return pods, why
}

// over lists the requests of a pod that exceed the pod limit; empty if none does.
func (q *Queue) over(p *Pod) string {
	var parts []string
	for name, limit := range q.PodLimit {
		if v := p.Requests[name]; v > limit {
			parts = append(parts, fmt.Sprintf("%s %s requested, %s allowed", amount(name, v), name, amount(name, limit)))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}
