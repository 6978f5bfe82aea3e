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

// Plan is what is to be done about a job, in this order: write the status, or confirm; delete; create, then the pods; update; stop; emit
// the events, if the status was written. Whoever carries it out stops at the first error, for each pass starts from what is seen then.
type Plan struct {
	// Refresh asks for another pass with pods that are read from the API server itself (Seen.Live), and for nothing else.
	// Some decisions cannot be taken back and do not follow from the end of a pod alone, but from the clock or from a change
	// of the spec: a cache that lags must not hide an end that came before.
	Refresh bool
	// Contested is true while a success waits for failures of the same moment that may not have been seen yet.
	Contested bool
	// Status to write under an optimistic lock; nil where nothing is to be written now.
	Status *batch.JobStatus
	// MaxDelay is for how long the plan may be put off while the API server has more important things to do, because Status
	// tells of nothing but progress, and nothing else is to be done; zero: not at all.
	MaxDelay time.Duration
	// Confirm asks to read the job from the API server before anything is deleted or created, and to stop if it is not the
	// one that was seen. It is set where no status write does that: a cached job older than the cached pods would have
	// replaced what has just been cleaned up. Only the first pods of a job that Seen.Unwritten vouches for need neither.
	Confirm bool
	// Delete lists pods to delete. Each must still be as it was seen.
	Delete []Deletion
	// Stop lists pods that are to stop and stay. What they did for their replicas is done, whatever job they belong to now.
	Stop []Stop
	// Create lists what pods depend on, in order: PodGroup, Service.
	Create []Object
	// Pods lists the pods to create once the objects of Create are there. Job.Pod builds each of them as it is sent, because
	// the pods of a large job do not fit into memory together.
	Pods []NewPod
	// Update lists objects whose spec is to be brought up to date.
	Update []Object
	// Events tell of the transitions that Status writes down.
	Events []Event
	// DeleteJob is true when the job has outlived its TTL.
	DeleteJob bool
	// RequeueAfter is the time to the nearest of all deadlines; zero where there is none.
	RequeueAfter time.Duration
}

// Object is a Kubernetes object.
type Object interface {
	metav1.Object
	runtime.Object
}

// NewPod says which pod to create. Job.Pod builds it.
type NewPod struct {
	Member
	// Mode is the run mode that the pod is made for.
	Mode batch.RunModeType
	// Attempt, Restarts and Backoff are the counts that the pod carries.
	Attempt, Restarts, Backoff int32
	// JobRestarts and BackoffCount are the counts of the whole job, which its pods remember should the status be lost.
	JobRestarts, BackoffCount int32
}

// Deletion names a pod to delete.
type Deletion struct {
	Name string
	UID  types.UID
	// ResourceVersion is set where the pod was seen not to have ended, and must still be the pod's: a pod that has ended in
	// the meantime keeps its result. Empty stands for any.
	ResourceVersion string
	// Force deletes a pod on a lost node without waiting for its kubelet.
	Force bool
}

// Stop names a pod in which sidecars run on after its replica has ended.
type Stop struct {
	Name string
	UID  types.UID
}

// pass is one evaluation of Next.
type pass struct {
	*Job
	seen *Seen
	cfg  *Config
	// old is the last status, never nil.
	old *batch.JobStatus
	// next is the next status, whether or not it is written now.
	next     *batch.JobStatus
	mode     batch.RunModeType
	finished bool
	// rejected is true for a job that cannot be carried out. It is Bare.
	rejected bool
	verdict  verdict
	// replicas of all roles; roles[i] is the part of role i.
	replicas []replica
	roles    [][]replica
	create   []*replica
	// leftovers are the pods of a job that is rejected.
	leftovers []*corev1.Pod
	// lost names the pods that are deleted by force, with their nodes.
	lost []string
	// restarts lists the replicas that restart alone in this pass, replaced counts all that restart.
	restarts []*replica
	replaced int
	inc      incident
	plan     Plan
	// wake is the nearest deadline; zero where there is none.
	wake time.Time
}

// Next says what to do about a job in the light of what has been seen of it. It is a function of its arguments and modifies
// none of them. Calling it again with the same or with newer observations is always safe.
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
	p.weigh()
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

// finish completes the plan of what has been decided.
func (p *pass) finish() {
	p.writeStatus()
	if len(p.lost) > 0 {
		p.event(warning(batch.EventNodeLost, "Deleting by force, since their nodes are lost and they cannot end by themselves: %s.", few(p.lost)))
	}
	p.build()
	if len(p.plan.Create)+len(p.plan.Pods)+len(p.plan.Update)+len(p.plan.Stop) > 0 {
		p.plan.MaxDelay = 0
	}
	p.plan.Confirm = p.plan.Status == nil && (len(p.plan.Delete)+len(p.plan.Update) > 0 || len(p.plan.Create)+len(p.plan.Pods) > 0 && !p.unwritten())
	if !p.wake.IsZero() {
		p.plan.RequeueAfter = max(p.wake.Sub(p.seen.Now), time.Millisecond)
	}
}

// weigh works out where each replica is and whether that ends the job.
func (p *pass) weigh() {
	p.load()
	p.observe()
	p.allowRestarts()
	p.verdict = p.judge()
}

// unwritten tells whether no status has been written, beyond doubt.
func (p *pass) unwritten() bool { return p.seen.Unwritten && p.old.RunMode == "" }

// runMode is the mode that pods are to be in now.
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

// resumed is true once the job has been paused and is not any more. The Paused condition remembers it.
func (p *pass) resumed() bool {
	c := condition(p.old, batch.JobPausedCondition)
	return c != nil && (c.Status == metav1.ConditionTrue || c.Reason == batch.ReasonResumed)
}

// load sets up the working state: one replica for each rank, with its record and its pod. Pods that carry no wanted replica
// are surplus and go at once.
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
		if r := p.find(pod.Name); r != nil {
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

// find is the replica of a name, or nil.
func (p *pass) find(name string) *replica {
	role, rank := p.splitName(name)
	for i := range p.Roles {
		if p.Roles[i].Type == role && rank >= 0 && rank < len(p.roles[i]) && p.roles[i][rank].name == name {
			return &p.roles[i][rank]
		}
	}
	return nil
}

// splitName finds role and rank in the name of a pod; the rank is -1 where it has none.
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

// observe works out where each replica is and whether it may be restarted.
func (p *pass) observe() {
	keep := p.mode != batch.RunDebug && p.old.RunMode != batch.RunDebug
	for i := range p.replicas {
		r := &p.replicas[i]
		r.returned = p.old.RunMode != "" && r.past.phase == ""
		if keep {
			r.watched = p.seen.Succeeded[r.knownUID()]
		}
		r.observe(p.mode, keep, p.cfg)
		p.noteFailure(r)
		if p.old.RunMode == batch.RunPause && r.disrupted { // it was the pause that took the pod away
			r.disrupted, r.uid, r.reason = false, "", ""
			r.attempt++
		}
		r.ran = r.disrupted && p.old.RunMode == p.mode && r.past.reason != reasonModeChanged && r.hadStarted()
		if p.old.RunMode == "" && r.pod != nil { // a status that was lost; the pods still tell
			r.restarts = count(r.pod.Annotations[batch.AnnotationRestarts])
		}
	}
}

// act decides what happens to each replica's pod.
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
		case p.goesAlong(r):
			p.restartAlong(r)
		case r.result != notEnded:
			p.restart(r)
		default:
			p.place(r)
			p.awaitStart(r.pod)
		}
		p.forceDelete(r.pod)
	}
	for _, pod := range p.leftovers {
		if p.goesAtEnd(!holdsResources(pod)) {
			p.deletePod(pod)
		}
		p.forceDelete(pod)
	}
	if done && p.TTL != nil {
		p.expire()
	}
}

// place removes a pod that must not be there and creates one that must.
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

// pause ends a pod. What finished by itself keeps its result.
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

// cleanUp handles the pod of a job that has finished. It is the one path for every cause of the end.
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
	if p.goesAtEnd(r.role.classify(r.pod) != notEnded) {
		p.deletePod(r.pod)
		if r.result == notEnded {
			r.phase, r.reason = batch.ReplicaDeleted, "Terminating"
		}
		return
	}
	p.stopSidecars(r)
}

// goesAtEnd tells whether a pod is deleted when the job has finished; ended tells whether the pod has.
func (p *pass) goesAtEnd(ended bool) bool {
	return p.CleanUp == batch.CleanUpAll || !ended && (p.CleanUp == batch.CleanUpUnfinished || p.pastDeadline())
}

// forget notes that a replica has no pod and is to have none. Its next pod, if any, is a further attempt.
func (p *pass) forget(r *replica) {
	if r.uid == "" && r.attempt == 0 { // it never had one
		r.phase, r.reason = batch.ReplicaPending, ""
		return
	}
	if r.uid != "" {
		r.uid = ""
		r.attempt++
	}
	r.phase, r.reason = batch.ReplicaDeleted, ""
}

// expire deletes the job when its time to live after the end is over.
func (p *pass) expire() {
	end := p.seen.Now
	if p.old.CompletionTime != nil {
		end = p.old.CompletionTime.Time
	}
	at := end.Add(*p.TTL)
	if p.seen.Now.Before(at) {
		p.wakeAt(at)
		return
	}
	// The end must be on record first: its events and its message are what people look for.
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
