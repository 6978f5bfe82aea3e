package live

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// past holds what the cluster has forgotten of its jobs, so that a timeline shows it: pods that are being deleted or
// are gone, as they were last seen, and former conditions. Keys are those of ownerOfPod.
type past struct {
	mu         sync.Mutex
	pods       map[string]map[types.UID]*corev1.Pod
	conditions map[string][]batch.JobCondition
	kept       int
	// order has the pods that are kept, the oldest first, and some that are no longer.
	order []pastPod
}

type pastPod struct {
	key string
	uid types.UID
}

// mostPast bounds the number of pods that are kept, and mostConditions that of conditions of one job. The oldest go
// first.
const (
	mostPast       = 20_000
	mostConditions = 500
)

// note keeps a pod of a job.
func (p *past) note(key string, pod *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pods == nil {
		p.pods = map[string]map[types.UID]*corev1.Pod{}
	}
	of := p.pods[key]
	if of == nil {
		of = map[types.UID]*corev1.Pod{}
		p.pods[key] = of
	}
	last, known := of[pod.UID]
	if !known {
		p.kept++
		p.order = append(p.order, pastPod{key, pod.UID})
	}
	of[pod.UID] = asked(last, pod)
	for p.kept > mostPast {
		p.drop(p.order[0])
		p.order = p.order[1:]
	}
	if len(p.order) > 2*mostPast {
		p.order = slices.DeleteFunc(p.order, func(o pastPod) bool { return p.pods[o.key][o.uid] == nil })
	}
}

// asked returns a pod with what its last version, if there is one, says of the request to delete it: once the kubelet
// has confirmed the end of the pod, the pod does not tell any more when that was.
func asked(last, pod *corev1.Pod) *corev1.Pod {
	if last == nil || pod.DeletionGracePeriodSeconds == nil || *pod.DeletionGracePeriodSeconds > 0 {
		return pod
	}
	pod = pod.DeepCopy()
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = last.DeletionTimestamp, last.DeletionGracePeriodSeconds
	return pod
}

// drop forgets a pod, if it is kept.
func (p *past) drop(o pastPod) {
	if p.pods[o.key][o.uid] == nil {
		return
	}
	p.kept--
	delete(p.pods[o.key], o.uid)
	if len(p.pods[o.key]) == 0 {
		delete(p.pods, o.key)
	}
}

// noteCondition keeps a condition that a job had.
func (p *past) noteCondition(key string, c *batch.JobCondition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conditions == nil {
		p.conditions = map[string][]batch.JobCondition{}
	}
	all := append(p.conditions[key], *c)
	p.conditions[key] = all[max(0, len(all)-mostConditions):]
}

// of returns what is kept of a job.
func (p *past) of(key string) ([]*corev1.Pod, []batch.JobCondition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*corev1.Pod, 0, len(p.pods[key]))
	for _, pod := range p.pods[key] {
		all = append(all, pod)
	}
	return all, slices.Clone(p.conditions[key])
}

// forget drops what is kept of a job that is gone.
func (p *past) forget(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept -= len(p.pods[key])
	delete(p.pods, key)
	delete(p.conditions, key)
}
