package core

import (
	"fmt"
	"slices"
	"strings"
)

// admitted are the pods that are not larger than the queue lets them be; why says what is wrong with one of the others, if
// there are any.
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

// allowed are the pods that wait and whose authors may use the queue; why says what is wrong with one of the others, if there are any.
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

// over tells the numbers of what a pod has too much of.
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
