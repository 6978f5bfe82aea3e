package engine

import (
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// Plan lists the actions for a job. The controller executes them in this order: it confirms the job or writes the
// status, records the events, deletes pods, creates objects and then pods, updates objects, stops pods, and deletes the
// job. It stops at the first error. This is safe because every pass starts from a fresh observation.
type Plan struct {
	// Refresh asks for another pass with pods read from the API server itself (Seen.Live). All other fields except
	// Contested are then empty. Decisions that cannot be undone and that depend on the clock or on a change of the
	// spec need it, because a stale cache must not hide that a pod ended first.
	Refresh bool
	// Contested is true while a success waits for failures of the same time that may not have been seen yet.
	Contested bool
	// Ends holds, by UID, when pods ended. It contains the pods whose end later passes need, for example because a
	// restart has to wait. The observer passes Ends to the next call.
	Ends map[types.UID]EndTime
	// Status is the status to write under an optimistic lock; nil if no status is to be written now.
	Status *batch.JobStatus
	// MaxDelay is the time for which the plan may be delayed while the API server is busy. It is zero if the plan may
	// not be delayed, and positive only if Status reports nothing but progress and the plan has no other actions.
	MaxDelay time.Duration
	// Confirm asks the controller to read the job from the API server before it deletes, creates or updates anything,
	// and to stop if the job differs from the observed one. It is false if Status is set, because the optimistic lock
	// of the status write makes the same check. Without a check, a cached job that is older than the cached pods could
	// make the controller recreate pods that were just cleaned up. The first pods of a job need neither check if
	// Seen.Unwritten is set.
	Confirm bool
	// Delete lists the pods to delete. Each deletion has preconditions on the observed pod.
	Delete []Deletion
	// Stop lists the pods to stop without deleting them. They need no confirmation, because their replicas have ended.
	Stop []Stop
	// Create lists the objects that the pods depend on, in order: PodGroup, Service.
	Create []Object
	// Pods lists the pods to create after the objects in Create. Job.Pod builds each pod when it is sent, because the
	// pods of a large job do not fit into memory together.
	Pods []NewPod
	// Update lists the objects whose spec or annotations have to change.
	Update []Object
	// Events report the transitions that Status records, and the pods that are deleted by force.
	Events []Event
	// DeleteJob is true if the job's TTL has expired.
	DeleteJob bool
	// RequeueAfter is the time until the next deadline; zero if there is none.
	RequeueAfter time.Duration
}

// Object is any Kubernetes object.
type Object interface {
	metav1.Object
	runtime.Object
}

// NewPod identifies a pod to create. Job.Pod builds it.
type NewPod struct {
	Member
	// Mode is the run mode of the pod.
	Mode batch.RunModeType
	// Attempt, Restarts and Backoff are the counts that the pod records in its labels and annotations.
	Attempt, Restarts, Backoff int32
	// JobRestarts and BackoffCount are the job's status.restarts and status.backoffCount. The pod records them in case
	// the status is lost.
	JobRestarts, BackoffCount int32
}

// Deletion identifies a pod to delete.
type Deletion struct {
	Name string
	UID  types.UID
	// ResourceVersion is a precondition for pods that had not ended when they were observed, so that a pod that ends in
	// the meantime keeps its result. Empty means no precondition.
	ResourceVersion string
	// Force deletes a pod on a lost node without waiting for its kubelet.
	Force bool
}

// Stop identifies a pod whose sidecars run although its replica has ended.
type Stop struct {
	Name string
	UID  types.UID
}

// pass is the state of one call of Next.
type pass struct {
	*Job
	seen *Seen
	cfg  *Config
	// old is the last status. It is never nil.
	old *batch.JobStatus
	// next is the next status, even if it is not written now.
	next     *batch.JobStatus
	mode     batch.RunModeType
	finished bool
	// rejected is true if the job cannot be carried out. The embedded job is then the result of Job.Bare.
	rejected bool
	verdict  verdict
	// replicas holds the replicas of all roles; roles[i] is the sub-slice of role i.
	replicas []replica
	roles    [][]replica
	create   []*replica
	// leftovers are the pods of a rejected job.
	leftovers []*corev1.Pod
	// lost are the pods that are deleted by force.
	lost []*corev1.Pod
	// restarts lists the replicas that restart alone in this pass; replaced counts all replicas that restart.
	restarts []*replica
	replaced int
	inc      incident
	plan     Plan
	// wake is the next deadline; zero if there is none.
	wake time.Time
}

// Next returns the plan for a job, given its observations. It is a function of its arguments and does not modify them.
// It may be called again at any time with the same or newer observations.
func Next(job *Job, seen Seen, cfg Config) Plan {
	if job.Deleting {
		return Plan{}
	}
	cfg = cfg.WithDefaults()
	p := &pass{Job: job, seen: &seen, cfg: &cfg, old: seen.Status}
	if p.old == nil {
		p.old = &batch.JobStatus{}
	}
	if p.rejected = job.rejected(p.old); p.rejected {
		p.Job = job.Bare()
	}
	p.finished = conditionTrue(p.old, batch.JobCompleted) || conditionTrue(p.old, batch.JobFailedCondition)
	p.mode = p.runMode()
	p.keepSize()
	if p.switches() && !seen.Live {
		return Plan{Refresh: true}
	}
	p.evaluate()
	if p.mode == batch.RunDebug && p.old.RunMode != batch.RunDebug && p.old.RunMode != "" {
		p = p.beforeDebug()
	}
	if p.plan.Refresh {
		return Plan{Refresh: true, Contested: p.plan.Contested}
	}
	p.act()
	p.finish()
	return p.plan
}

// finish completes the plan from the decisions of the pass.
func (p *pass) finish() {
	p.writeStatus()
	p.lostEvent()
	p.build()
	if len(p.plan.Create)+len(p.plan.Pods)+len(p.plan.Update)+len(p.plan.Stop) > 0 || p.plan.DeleteJob {
		p.plan.MaxDelay = 0
	}
	p.plan.Confirm = p.plan.Status == nil && (len(p.plan.Delete)+len(p.plan.Update) > 0 || len(p.plan.Create)+len(p.plan.Pods) > 0 && !p.unwritten())
	if !p.wake.IsZero() {
		p.plan.RequeueAfter = max(p.wake.Sub(p.seen.Now), time.Millisecond)
	}
}

// evaluate determines the state of each replica and whether the job has ended.
func (p *pass) evaluate() {
	p.load()
	p.observe()
	p.allowRestarts()
	p.verdict = p.judge()
}

// unwritten reports whether it is certain that no status has been written.
func (p *pass) unwritten() bool { return p.seen.Unwritten && p.old.RunMode == "" }

// runMode returns the mode in which the pods should run now.
func (p *pass) runMode() batch.RunModeType {
	switch {
	case p.finished && p.old.RunMode != "":
		return p.old.RunMode
	case p.Pause:
		return batch.RunPause
	case p.Debug:
		return batch.RunDebug
	case p.resumed():
		return batch.RunResume
	default:
		return batch.RunImmediate
	}
}

// resumed reports whether the job has been paused before, as the Paused condition records. The result is meaningful
// only if the job is not to be paused now.
func (p *pass) resumed() bool {
	c := condition(p.old, batch.JobPausedCondition)
	return c != nil && (c.Status == metav1.ConditionTrue || c.Reason == batch.ReasonResumed)
}

// load sets up one replica for each rank, with its record and its pod. It plans the deletion of pods of ranks that the
// job does not have, and of pods that were created after the job had finished. If the job is rejected, they become
// leftovers instead.
func (p *pass) load() {
	p.replicas = make([]replica, 0, p.Replicas())
	p.roles = make([][]replica, len(p.Roles))
	for i := range p.Roles {
		first := len(p.replicas)
		for rank := range p.Roles[i].Replicas {
			p.replicas = append(p.replicas, replica{Member: Member{i, rank}, role: &p.Roles[i], name: p.PodName(p.Roles[i].Type, rank)})
		}
		p.roles[i] = p.replicas[first:]
	}
	p.loadRecords()
	for _, pod := range p.seen.Pods {
		if r := p.find(pod.Name); r != nil && !p.createdAfterEnd(r, pod) {
			r.pod = pod
			continue
		}
		if p.rejected {
			p.leftovers = append(p.leftovers, pod)
			continue
		}
		p.deletePod(pod)
		p.forceDelete(pod)
	}
}

// find returns the replica with the given pod name; nil if there is none.
func (p *pass) find(name string) *replica {
	role, rank := p.splitName(name)
	for i := range p.Roles {
		if p.Roles[i].Type == role && rank >= 0 && rank < len(p.roles[i]) && p.roles[i][rank].name == name {
			return &p.roles[i][rank]
		}
	}
	return nil
}

// splitName splits the name of a pod into role and rank. The rank is -1 if the name has another form.
func (j *Job) splitName(name string) (role string, rank int) {
	rest, ok := strings.CutPrefix(name, j.Name+"-")
	cut := strings.LastIndexByte(rest, '-')
	if !ok || cut < 0 {
		return "", -1
	}
	rank, err := strconv.Atoi(rest[cut+1:])
	if err != nil {
		return "", -1
	}
	return rest[:cut], rank
}

// observe determines the state of each replica from its record and its pod.
func (p *pass) observe() {
	keep := p.mode != batch.RunDebug && p.old.RunMode != batch.RunDebug
	for i := range p.replicas {
		r := &p.replicas[i]
		r.returned = p.old.RunMode != "" && r.past.phase == ""
		if keep {
			r.watched = p.seen.Succeeded[r.knownUID()]
		}
		r.observe(p, keep)
		p.confirmGone(r)
		p.noteFailure(r)
		if p.old.RunMode == batch.RunPause && r.disrupted { // the pause removed the pod, so it was not disrupted
			r.disrupted, r.uid, r.reason = false, "", ""
			r.attempt++
		}
		r.ran = r.disrupted && p.old.RunMode == p.mode && r.past.reason != reasonModeChanged && r.hadStarted()
		if p.old.RunMode == "" && r.pod != nil { // the status was lost; the pods still carry the counts
			r.restarts = count(r.pod.Annotations[batch.AnnotationRestarts])
		}
	}
}

// act plans what happens to each pod, and the deletion of a job whose TTL has expired.
func (p *pass) act() {
	done := p.finished || p.verdict.over()
	p.startTogether()
	for i := range p.replicas {
		r := &p.replicas[i]
		switch {
		case done:
			p.cleanUp(r)
		case p.mode == batch.RunPause:
			p.pause(r)
		case p.restartsWithAll(r):
			p.restartWithAll(r)
		case r.result != notEnded:
			p.restart(r)
		default:
			p.place(r)
			p.awaitStart(r.pod)
		}
		p.forceDelete(r.pod)
	}
	for _, pod := range p.leftovers {
		if p.deletedAtEnd(!holdsResources(pod)) {
			p.deletePod(pod)
		}
		p.forceDelete(pod)
	}
	if done && p.TTL != nil {
		p.expire()
	}
}

// place plans the creation of a pod that must exist, or the deletion of one that must not. A disrupted pod remains
// until dueAt.
func (p *pass) place(r *replica) {
	switch {
	case r.pod == nil && r.create:
		p.create = append(p.create, r)
	case r.pod == nil || !r.remove:
	case r.disrupted && p.seen.Now.Before(r.dueAt):
		p.wakeAt(r.dueAt)
	default:
		p.deletePod(r.pod)
	}
}

// pause deletes the pod of a replica. A replica that has ended by itself keeps its result.
func (p *pass) pause(r *replica) {
	if r.pod != nil {
		p.deletePod(r.pod)
		if r.result == notEnded {
			r.phase, r.reason = batch.ReplicaDeleted, "Terminating"
		}
		return
	}
	if r.result == notEnded {
		p.forget(r)
	}
}

// cleanUp deletes the pod of a replica after the end of the job if the clean-up policy or an exceeded deadline
// requires it. A pod that has ended remains until its log can have been read. cleanUp stops the sidecars in pods that
// remain.
func (p *pass) cleanUp(r *replica) {
	if r.pod == nil {
		if r.result == notEnded {
			p.forget(r)
		}
		return
	}
	if r.superseded || r.remove && r.result == notEnded && !r.disrupted {
		r.phase, r.reason = batch.ReplicaDeleted, ""
	}
	ended := r.role.classify(r.pod) != notEnded
	if p.deletedAtEnd(ended) && (!ended || !p.logUnread(r)) {
		p.deletePod(r.pod)
		if r.result == notEnded {
			r.phase, r.reason = batch.ReplicaDeleted, "Terminating"
		}
		return
	}
	p.stopSidecars(r)
}

// forget records that a replica has no pod and gets none. If it gets a pod later, that pod is a new attempt.
func (p *pass) forget(r *replica) {
	if r.uid == "" && r.attempt == 0 { // it never had a pod
		r.phase, r.reason = batch.ReplicaPending, ""
		return
	}
	if r.uid != "" {
		r.uid = ""
		r.attempt++
	}
	r.phase, r.reason = batch.ReplicaDeleted, ""
}

// expire deletes the job when its TTL has expired.
func (p *pass) expire() {
	end := p.seen.Now
	if p.old.CompletionTime != nil {
		end = p.old.CompletionTime.Time
	}
	at := end.Add(max(*p.TTL, p.cfg.LogReadTime))
	if p.seen.Now.Before(at) {
		p.wakeAt(at)
		return
	}
	// The end is written to the status first, so that its events and its message exist before the job is deleted.
	p.plan.DeleteJob = p.finished
	if !p.finished {
		p.wakeAt(p.seen.Now)
	}
}

func (p *pass) wakeAt(t time.Time) {
	if p.wake.IsZero() || t.Before(p.wake) {
		p.wake = t
	}
}
