package live

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// past holds objects that the cluster no longer has, so that timelines can show them: the last observed state of pods
// that are being deleted or were deleted, and former conditions of jobs. Its keys are the keys of ownerOfPod.
type past struct {
	mu         sync.Mutex
	pods       map[string]map[types.UID]*corev1.Pod
	conditions map[string][]batch.JobCondition
	// kept is the number of pods in pods.
	kept int
	// order holds the pods in the order in which they were added. It may also contain pods that are no longer kept.
	order []pastPod
}

type pastPod struct {
	key string
	uid types.UID
}

// maxPods is the largest number of kept pods, and maxConditions the largest number of kept conditions of one job. The
// oldest are dropped first.
const (
	maxPods       = 20_000
	maxConditions = 500
)

// note adds a pod of a job, or replaces its earlier version.
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
	for p.kept > maxPods {
		p.drop(p.order[0])
		p.order = p.order[1:]
	}
	if len(p.order) > 2*maxPods {
		p.order = slices.DeleteFunc(p.order, func(o pastPod) bool { return p.pods[o.key][o.uid] == nil })
	}
}

// asked returns a version of pod that shows when its deletion was requested. The last version of a pod, in which the
// kubelet confirms the end, does not show this: its grace period is 0. For it, asked returns a copy with the deletion
// time and grace period of last, the previous version of the pod. If last is nil, asked returns pod.
func asked(last, pod *corev1.Pod) *corev1.Pod {
	if last == nil || pod.DeletionGracePeriodSeconds == nil || *pod.DeletionGracePeriodSeconds > 0 {
		return pod
	}
	pod = pod.DeepCopy()
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = last.DeletionTimestamp, last.DeletionGracePeriodSeconds
	return pod
}

// drop removes a pod if it is still kept. The caller holds the lock.
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

// noteCondition adds a former condition of a job.
func (p *past) noteCondition(key string, c *batch.JobCondition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conditions == nil {
		p.conditions = map[string][]batch.JobCondition{}
	}
	all := append(p.conditions[key], *c)
	p.conditions[key] = all[max(0, len(all)-maxConditions):]
}

// of returns the kept pods of a job in no particular order, and its kept conditions, oldest first.
func (p *past) of(key string) ([]*corev1.Pod, []batch.JobCondition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*corev1.Pod, 0, len(p.pods[key]))
	for _, pod := range p.pods[key] {
		all = append(all, pod)
	}
	return all, slices.Clone(p.conditions[key])
}

// keys returns the keys of the jobs that have kept pods.
func (p *past) keys() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.pods))
}

// forget drops the kept pods and conditions of a deleted job.
func (p *past) forget(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept -= len(p.pods[key])
	delete(p.pods, key)
	delete(p.conditions, key)
}
