package live

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/console/view"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/observed"
)

// handler returns an event handler that publishes the topic of each changed object.
func (c *Cache) handler(topic func(any) string) cache.ResourceEventHandlerFuncs {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { c.hub.publish(topic(o)) },
		UpdateFunc: func(_, o any) { c.hub.publish(topic(o)) },
		DeleteFunc: func(o any) { c.hub.publish(topic(last(o))) },
	}
}

// last returns the last observed state of a deleted object.
func last(o any) any {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		return gone.Obj
	}
	return o
}

// jobHandler returns an event handler for the jobs of a kind. It maintains their rows, adds replaced conditions to
// past, drops the past of deleted jobs, and publishes TopicJobs and the topic of the changed job.
func (c *Cache) jobHandler(k *kinds.Kind) cache.ResourceEventHandlerFuncs {
	set := func(o any) {
		object, ok := o.(kinds.Object)
		if !ok {
			return
		}
		row := view.RowOf(&observed.Job{Kind: k, Object: object})
		topic := JobTopic(k.Name, object.GetNamespace(), object.GetName())
		c.mu.Lock()
		c.rows[topic] = row
		c.mu.Unlock()
		c.hub.publish(TopicJobs)
		c.hub.publish(topic)
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: set,
		UpdateFunc: func(old, o any) {
			c.replaced(k, old, o)
			set(o)
		},
		DeleteFunc: func(o any) {
			object, ok := last(o).(kinds.Object)
			if !ok {
				return
			}
			topic := JobTopic(k.Name, object.GetNamespace(), object.GetName())
			c.mu.Lock()
			delete(c.rows, topic)
			c.mu.Unlock()
			c.past.forget(topic + "/" + string(object.GetUID()))
			c.hub.publish(TopicJobs)
			c.hub.publish(topic)
		},
	}
}

// replaced adds to past the condition Paused that an update of a job has replaced. If the UID differs, the job was
// deleted and created again, and replaced drops the past of the old job.
func (c *Cache) replaced(k *kinds.Kind, old, now any) {
	was, ok := old.(kinds.Object)
	is, same := now.(kinds.Object)
	if !ok || !same {
		return
	}
	key := JobTopic(k.Name, was.GetNamespace(), was.GetName()) + "/" + string(was.GetUID())
	if was.GetUID() != is.GetUID() {
		c.past.forget(key)
		return
	}
	before, after := observed.Condition(k.Status(was), batch.JobPausedCondition), observed.Condition(k.Status(is), batch.JobPausedCondition)
	if before.Type != "" && !before.LastTransitionTime.Equal(&after.LastTransitionTime) {
		c.past.noteCondition(key, &before)
	}
}

// podHandler returns an event handler that publishes the topics of a changed pod: the topic of its job, the topic of
// nodes and, while the pod waits for the t9k-scheduler, the topic of queues. It also adds to past the pods that are
// being deleted.
func (c *Cache) podHandler() cache.ResourceEventHandlerFuncs {
	publish := func(o any) {
		if topics, err := jobOfPod(o); err == nil {
			for _, t := range topics {
				c.hub.publish(t)
			}
		}
		c.hub.publish(topicNodes)
		if w, err := waitsForUs(o); err == nil && len(w) > 0 {
			c.hub.publish(topicQueues)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: publish,
		UpdateFunc: func(_, o any) {
			c.notePod(o)
			publish(o)
		},
		DeleteFunc: func(o any) {
			c.notePod(last(o))
			publish(last(o))
		},
	}
}

// warningHandler returns an event handler that publishes, for each warning about a pod, the topic of the pod's job. It
// finds the pod by name. If the cache does not have the pod yet, podHandler publishes the topic later.
func (c *Cache) warningHandler() cache.ResourceEventHandlerFuncs {
	publish := func(o any) {
		e, ok := o.(*corev1.Event)
		if !ok {
			return
		}
		for _, p := range keyed[*corev1.Pod](c.pods, e.InvolvedObject.Namespace+"/"+e.InvolvedObject.Name) {
			if topics, err := jobOfPod(p); err == nil && len(topics) > 0 {
				c.hub.publish(topics[0])
			}
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: publish, UpdateFunc: func(_, o any) { publish(o) }, DeleteFunc: func(o any) { publish(last(o)) }}
}

// notePod adds to past a pod that is being deleted, unless its job no longer exists: pods may outlive their job. Until
// the caches are filled, notePod cannot tell whether a job exists and adds the pods of all jobs. dropStray later drops
// the pods of jobs that do not exist.
func (c *Cache) notePod(o any) {
	p, ok := o.(*corev1.Pod)
	if !ok || p.DeletionTimestamp == nil {
		return
	}
	keys, _ := ownerOfPod(p)
	if len(keys) == 0 {
		return
	}
	select {
	case <-c.settled:
		if !c.exists(keys[0]) {
			return
		}
	default:
	}
	c.past.note(keys[0], p)
}

// dropStray drops the past of jobs that do not exist.
func (c *Cache) dropStray() {
	for _, key := range c.past.keys() {
		if !c.exists(key) {
			c.past.forget(key)
		}
	}
}

// exists reports whether the cache has the job to which a key of ownerOfPod refers.
func (c *Cache) exists(key string) bool {
	i := strings.LastIndexByte(key, '/')
	c.mu.RLock()
	defer c.mu.RUnlock()
	row, there := c.rows[key[:i]]
	return there && row.UID == key[i+1:]
}

// slim drops the managed fields of an object, which no page shows.
func slim(o any) (any, error) {
	if m, err := meta.Accessor(o); err == nil {
		m.SetManagedFields(nil)
	}
	return o, nil
}

// slimPod drops all fields of a pod's spec except the node, the scheduler, the overhead and the deadline, and the
// names, resources and restart policies of containers. It also drops the managed fields, and all annotations except the
// requesting user.
func slimPod(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	spec := corev1.PodSpec{NodeName: p.Spec.NodeName, SchedulerName: p.Spec.SchedulerName, Overhead: p.Spec.Overhead, ActiveDeadlineSeconds: p.Spec.ActiveDeadlineSeconds,
		Resources: p.Spec.Resources, Containers: slimContainers(p.Spec.Containers), InitContainers: slimContainers(p.Spec.InitContainers)}
	var by map[string]string
	if user, ok := p.Annotations[scheduling.AnnotationRequestedBy]; ok {
		by = map[string]string{scheduling.AnnotationRequestedBy: user}
	}
	p.Spec, p.ManagedFields, p.Annotations = spec, nil, by
	return p, nil
}

// slimEvent drops the fields of an event that no page shows. This matters because the cache holds warnings about all
// pods of the cluster, not only about pods of jobs.
func slimEvent(o any) (any, error) {
	e, ok := o.(*corev1.Event)
	if !ok {
		return o, nil
	}
	of := e.InvolvedObject
	return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name, UID: e.UID, ResourceVersion: e.ResourceVersion, CreationTimestamp: e.CreationTimestamp},
		InvolvedObject: corev1.ObjectReference{Kind: of.Kind, Namespace: of.Namespace, Name: of.Name, UID: of.UID}, Reason: e.Reason, Message: e.Message, Type: e.Type,
		FirstTimestamp: e.FirstTimestamp, LastTimestamp: e.LastTimestamp, EventTime: e.EventTime, Count: e.Count, Series: e.Series}, nil
}

func slimContainers(all []corev1.Container) []corev1.Container {
	slim := make([]corev1.Container, len(all))
	for i := range all {
		slim[i] = corev1.Container{Name: all[i].Name, Resources: all[i].Resources, RestartPolicy: all[i].RestartPolicy}
	}
	return slim
}

func jobOfPod(o any) ([]string, error) {
	p, ok := o.(*corev1.Pod)
	if !ok || p.Labels[batch.LabelJobName] == "" {
		return nil, nil
	}
	return []string{JobTopic(p.Labels[batch.LabelJobKind], p.Namespace, p.Labels[batch.LabelJobName])}, nil
}

// ownerOfPod returns a key with the topic and the UID of the job that a pod belongs to, or no key if the pod lacks a
// job's label or a controller. The UID tells successive jobs of one name apart. ownerOfPod is the index function of
// byJob.
func ownerOfPod(o any) ([]string, error) {
	topics, err := jobOfPod(o)
	p, ok := o.(*corev1.Pod)
	if !ok || len(topics) == 0 {
		return nil, err
	}
	owner := metav1.GetControllerOf(p)
	if owner == nil {
		return nil, nil
	}
	return []string{topics[0] + "/" + string(owner.UID)}, nil
}

func waitsForUs(o any) ([]string, error) {
	p, ok := o.(*corev1.Pod)
	if !ok || p.Spec.SchedulerName != scheduling.SchedulerName || p.Spec.NodeName != "" || p.Status.Phase != corev1.PodPending {
		return nil, nil
	}
	return []string{"yes"}, nil
}

func nodeOf(o any) ([]string, error) {
	p, ok := o.(*corev1.Pod)
	if !ok || p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil, nil
	}
	return []string{"yes"}, nil
}

func uidOfPod(o any) ([]string, error) {
	e, ok := o.(*corev1.Event)
	if !ok {
		return nil, nil
	}
	return []string{string(e.InvolvedObject.UID)}, nil
}

func eventTopic(o any) string {
	e, ok := o.(*corev1.Event)
	if !ok {
		return ""
	}
	return JobTopic(e.InvolvedObject.Kind, e.InvolvedObject.Namespace, e.InvolvedObject.Name)
}
