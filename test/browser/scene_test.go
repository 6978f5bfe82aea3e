package browser

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// scene puts objects on a stage.
type scene struct {
	*stage
	now time.Time
}

// ago returns the time d before now.
func (s *scene) ago(d time.Duration) metav1.Time {
	return metav1.NewTime(s.now.Add(-d).Truncate(time.Second))
}

// play describes a job of a scene. Its durations say how long ago something happened.
type play struct {
	namespace, name, queue, user string
	phase                        batch.JobPhase
	replicas, running            int32
	gpus                         string
	created, started, ended      time.Duration
	// crashed is how long ago rank 1 failed with an exit code and was replaced; 0 if it was not replaced.
	crashed time.Duration
	message string
	node    func(rank int32) string
}

func (p *play) uid() types.UID { return types.UID(p.namespace + "-" + p.name) }

// owned returns the owner references of the objects of the job.
func (p *play) owned() []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: ours, Kind: "GenericJob", Name: p.name, UID: p.uid(), Controller: new(true)}}
}

const gpu = "nvidia.com/gpu"

// job puts a job with its pods, its PodGroup and its events on the stage.
func (s *scene) job(p *play) {
	meta := metav1.ObjectMeta{Namespace: p.namespace, Name: p.name, UID: p.uid(), CreationTimestamp: s.ago(p.created)}
	requester, err := json.Marshal([]string{p.user})
	if err != nil {
		panic(err) // a list of strings can always be encoded
	}
	meta.Annotations = map[string]string{scheduling.AnnotationRequestedBy: string(requester)}
	requests := corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("64Gi"), gpu: resource.MustParse(p.gpus)}
	spec := corev1.PodSpec{SchedulerName: scheduling.SchedulerName, Containers: []corev1.Container{{Name: "main", Image: "registry.example.com/research/train:2.4",
		Command: []string{"python", "train.py", "--config", p.name + ".yaml"}, Resources: corev1.ResourceRequirements{Requests: requests, Limits: corev1.ResourceList{gpu: requests[gpu]}}}}}
	j := &batch.GenericJob{TypeMeta: metav1.TypeMeta{APIVersion: ours, Kind: "GenericJob"}, ObjectMeta: meta, Spec: batch.GenericJobSpec{
		ReplicaSpecs: []batch.ReplicaSpec{{Type: "worker", Replicas: &p.replicas, Template: corev1.PodTemplateSpec{Spec: spec}}}}}
	j.Spec.Scheduler = &batch.SchedulePolicy{T9kScheduler: &batch.T9kScheduler{Queue: p.queue}}
	status := batch.Tasks{Type: "worker"}
	for rank := range p.replicas {
		status.Replicas = append(status.Replicas, s.replica(p, spec, rank))
	}
	start := s.ago(p.started)
	j.Status.JobStatus = batch.JobStatus{Phase: p.phase, Tasks: []batch.Tasks{status}, StartTime: &start, RunMode: batch.RunImmediate, Replicas: p.replicas}
	j.Status.Aggregate.Running = p.running
	if p.phase == batch.JobPending {
		j.Status.Aggregate.Pending = p.replicas
	}
	running := batch.JobCondition{Type: batch.JobRunningCondition, Status: metav1.ConditionFalse, Message: p.message, LastTransitionTime: start}
	switch p.phase {
	case batch.JobRunning:
		running.Status = metav1.ConditionTrue
	case batch.JobSucceeded, batch.JobFailed:
		end := s.ago(p.ended)
		j.Status.CompletionTime, j.Status.RunSeconds = &end, int64((p.started-p.ended)/time.Second)
		if p.phase == batch.JobSucceeded {
			j.Status.Aggregate.Succeeded = p.replicas
		} else {
			j.Status.Aggregate.Failed, j.Status.Aggregate.Deleted = 1, p.replicas-1
			j.Status.Conditions = append(j.Status.Conditions, batch.JobCondition{Type: batch.JobFailedCondition, Status: metav1.ConditionTrue, Message: p.message, LastTransitionTime: end})
		}
	}
	if p.crashed > 0 {
		j.Status.Restarts, j.Status.BackoffCount = 1, 1
		s.add("events", corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}, ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.name + "-1"},
			InvolvedObject: corev1.ObjectReference{Kind: "GenericJob", Namespace: p.namespace, Name: p.name, UID: meta.UID}, Type: "Normal", Reason: string(batch.EventReplicaRestarted),
			Message: "Restarting: " + p.name + "-worker-1 ended with exit code 1 (restart 1 of 3).", LastTimestamp: s.ago(p.crashed)})
	}
	j.Status.Conditions = append(j.Status.Conditions, running)
	s.add("genericjobs", j)
	s.group(p, requests)
}

// happen adds events of pods, which the stage sends after the list.
func (s *scene) happen(events ...event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events["pods"] = append(s.events["pods"], events...)
}

// replica puts the pod of a replica on the stage, and also the pod that it replaced, if any. It returns the status of
// the replica.
func (s *scene) replica(p *play, spec corev1.PodSpec, rank int32) batch.ReplicaStatus {
	name := fmt.Sprintf("%s-worker-%d", p.name, rank)
	r := batch.ReplicaStatus{Name: name, UID: p.namespace + name, Phase: batch.ReplicaPending}
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Spec: spec, ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name, UID: types.UID(r.UID),
		CreationTimestamp: s.ago(p.created - time.Second), Labels: map[string]string{batch.LabelJobName: p.name, batch.LabelJobKind: "GenericJob", batch.LabelReplicaType: "worker",
			batch.LabelReplicaRank: strconv.Itoa(int(rank)), batch.LabelReplicaAttempt: "0", scheduling.LabelQueue: p.queue, scheduling.LabelGroupName: p.name},
		OwnerReferences: p.owned()}}
	pod.Status.Phase = corev1.PodPending
	if p.node == nil {
		s.add("pods", pod)
		return r
	}
	run := func(from time.Duration) corev1.ContainerState {
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: s.ago(from)}}
	}
	end := func(from, to time.Duration, code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, StartedAt: s.ago(from), FinishedAt: s.ago(to)}}
	}
	set := func(phase corev1.PodPhase, scheduled time.Duration, state corev1.ContainerState) {
		pod.Spec.NodeName, pod.Status.Phase = p.node(rank), phase
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: s.ago(scheduled)}}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: state}}
	}
	if rank == 1 && p.crashed > 0 {
		set(corev1.PodFailed, p.started+20*time.Second, end(p.started, p.crashed, 1))
		old, gone := pod.DeepCopy(), s.ago(p.crashed)
		old.UID, old.DeletionTimestamp = types.UID(r.UID+"-old"), &gone
		s.happen(event{"ADDED", old}, event{"DELETED", old})
		pod.CreationTimestamp, pod.Labels[batch.LabelReplicaAttempt] = s.ago(p.crashed-30*time.Second), "1"
		r.Attempt, r.RestartCount = 1, 1
		set(corev1.PodRunning, p.crashed-35*time.Second, run(p.crashed-time.Minute))
	} else {
		set(corev1.PodRunning, p.started+20*time.Second, run(p.started))
	}
	r.Phase, r.NodeName = batch.ReplicaRunning, pod.Spec.NodeName
	switch {
	case p.phase == batch.JobSucceeded:
		set(corev1.PodSucceeded, p.started+20*time.Second, end(p.started, p.ended, 0))
		r.Phase = batch.ReplicaSucceeded
	case p.phase == batch.JobFailed && rank == 0:
		set(corev1.PodFailed, p.started+20*time.Second, end(p.started, p.ended, 1))
		code := int32(1)
		r.Phase, r.Containers = batch.ReplicaFailed, []batch.ContainerStatus{{Name: "main", State: batch.ContainerTerminated, ExitCode: &code}}
	case p.phase == batch.JobFailed:
		gone := s.ago(p.ended - time.Second)
		pod.DeletionTimestamp = &gone
		set(corev1.PodRunning, p.started+20*time.Second, run(p.started))
		r.Phase = batch.ReplicaDeleted
	}
	switch {
	case r.Phase == batch.ReplicaDeleted:
		s.happen(event{"ADDED", pod}, event{"DELETED", pod})
	case r.Attempt > 0:
		s.happen(event{"ADDED", pod})
	default:
		s.add("pods", pod)
	}
	return r
}

// group puts the PodGroup of a job on the stage, unless the job has ended.
func (s *scene) group(p *play, requests corev1.ResourceList) {
	g := &scheduling.PodGroup{TypeMeta: metav1.TypeMeta{APIVersion: scheduler, Kind: "PodGroup"}, ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.name,
		UID: types.UID("group-" + p.namespace + p.name), CreationTimestamp: s.ago(p.created), OwnerReferences: p.owned()}, Spec: scheduling.PodGroupSpec{Queue: p.queue, MinMember: p.replicas}}
	c := scheduling.PodGroupCondition{Type: scheduling.GroupScheduled, Status: metav1.ConditionFalse, Reason: scheduling.ReasonNoRoom, Message: p.message}
	switch {
	case p.ended > 0:
		return
	case p.running > 0:
		c.Status, c.Message, c.LastTransitionTime = metav1.ConditionTrue, "", s.ago(p.started)
		g.Status.Running, g.Status.Allocated = p.replicas, corev1.ResourceList{}
		for name, q := range requests {
			q.Mul(int64(p.replicas))
			g.Status.Allocated[name] = q
		}
	default:
		g.Status.Pending = p.replicas
	}
	g.Status.Conditions = []scheduling.PodGroupCondition{c}
	s.add("podgroups", g)
}

// queue puts a queue on the stage.
func (s *scene) queue(name string, priority int32, used, quota string, change func(*scheduling.QueueSpec)) {
	q := &scheduling.Queue{TypeMeta: metav1.TypeMeta{APIVersion: scheduler, Kind: "Queue"}, ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("queue-" + name)},
		Spec: scheduling.QueueSpec{Priority: priority, Quota: scheduling.QueueQuota{Requests: corev1.ResourceList{gpu: resource.MustParse(quota)}}}}
	if used != "0" {
		n := resource.MustParse(used)
		q.Status.Allocated = corev1.ResourceList{gpu: n, "cpu": *resource.NewQuantity(8*n.Value(), resource.DecimalSI), "memory": *resource.NewQuantity(n.Value()<<36, resource.BinarySI)}
	}
	change(&q.Spec)
	s.add("queues", q)
}

// node puts a node with eight GPUs on the stage.
func (s *scene) node(name string, ready bool, change ...func(*corev1.Node)) {
	n := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("96"), "memory": resource.MustParse("768Gi"), gpu: resource.MustParse("8")}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
	if ready {
		n.Status.Conditions[0].Status = corev1.ConditionTrue
	}
	for _, c := range change {
		c(n)
	}
	s.add("nodes", n)
}
