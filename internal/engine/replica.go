package engine

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// replica is the working state of one replica during a pass.
type replica struct {
	Member
	role *Role
	name string
	// past is what the last status recorded. Its counts never go backwards.
	past record
	// pod carries the replica now; nil where there is none.
	pod *corev1.Pod

	// phase and reason go into the next status.
	phase  batch.ReplicaPhase
	reason string
	// restarts, attempt and backoff are the counts for the next status, incident the last incident in which the replica failed.
	restarts, attempt, backoff, incident int32
	// exit is the exit code where the replica has ended by itself.
	exit *int32
	// uid is that of the pod which the status speaks of.
	uid string

	// result is succeeded or failed where the replica ended by itself, whether or not it will be restarted.
	result ending
	// due is true where a restart is allowed after result, fresh where it belongs to a new incident and not to the open one.
	due, fresh bool
	// dueAt is when that restart may happen.
	dueAt time.Time
	// create is true where a pod must be created, now or as soon as the old one has gone.
	create bool
	// remove asks for the pod's deletion.
	remove bool
	// disrupted is true while a pod that was taken away is being replaced, ran where that pod had run, as far as is known.
	disrupted, ran bool
	// superseded is true while a pod has not gone yet that a restart has replaced.
	superseded bool
	// watched is the replica's pod as it was watched to succeed, before it was deleted; nil where it was not.
	watched *corev1.Pod
	// returned is true where a status has been written that does not know the replica: its rank is new, or was scaled away
	// before. A pod that it has and that has ended is from then, and may have been counted.
	returned bool
}

// reasonDebugEnded marks a replica whose debug command has ended.
const reasonDebugEnded = "DebugCommandEnded"

// reasonModeChanged marks a replica whose pod was made for another run mode.
const reasonModeChanged = "RunModeChanged"

// record is what a status remembers of a replica beyond its pod.
type record struct {
	uid                                  string
	phase                                batch.ReplicaPhase
	restarts, attempt, backoff, incident int32
	exit                                 *int32
	reason                               string
	containers                           []batch.ContainerStatus
}

// finalResult is the result that the record holds, or notEnded.
func (r *record) finalResult() ending {
	switch r.phase {
	case batch.ReplicaSucceeded:
		return succeeded
	case batch.ReplicaFailed:
		return failed
	default:
		return notEnded
	}
}

// final is true where the replica has ended for good.
func (r *replica) final() bool { return r.result != notEnded && !r.due }

// observe fills in what the pod and the record say. keepResults tells that results recorded earlier still count.
func (r *replica) observe(mode batch.RunModeType, keepResults bool, cfg *Config) {
	r.restarts, r.attempt, r.backoff, r.incident = r.past.restarts, r.past.attempt, r.past.backoff, r.past.incident
	r.uid = r.past.uid
	if r.pod == nil {
		r.observeAbsent(keepResults)
		return
	}
	r.uid = string(r.pod.UID)
	end := r.podEnd()
	attempt := count(r.pod.Labels[batch.LabelReplicaAttempt])
	r.superseded = attempt < r.past.attempt && !r.succeededFirst(end) || end != notEnded && r.returned
	if r.superseded {
		r.uid, r.attempt = "", max(r.past.attempt, attempt+1)
		r.phase, r.reason = batch.ReplicaCreating, "Restarting"
		r.remove, r.create = true, true
		return
	}
	r.attempt = max(r.past.attempt, attempt)
	r.backoff = count(r.pod.Annotations[batch.AnnotationBackoff])
	if recorded := r.past.finalResult(); keepResults && r.past.uid == r.uid && recorded != notEnded {
		end = recorded // it was seen to end before anybody deleted it, or before what a cache shows now
	}
	switch {
	case wrongMode(r.pod, mode, end):
		r.phase, r.reason = batch.ReplicaDeleted, reasonModeChanged
		r.remove, r.create = true, true
	case end == notEnded:
		r.phase = podPhase(r.pod)
		r.reason = waitingReason(r.pod)
	case end == disrupted:
		r.observeDisrupted(cfg)
	default:
		r.result, r.exit = end, r.endCode()
		r.phase = batch.ReplicaSucceeded
		if end == failed {
			r.phase, r.reason = batch.ReplicaFailed, r.role.endReason(r.pod)
		}
		r.dueAt = r.nextStart(cfg)
		if mode == batch.RunDebug {
			r.observeDebugEnd(cfg)
		}
	}
}

// endCode returns the exit code of the replica's pod. The cache of a new leader may show the pod as it was before the end that the
// status has on record.
func (r *replica) endCode() *int32 {
	if code := r.role.exitCode(r.pod); code != nil || r.past.uid != r.uid {
		return code
	}
	return r.past.exit
}

// podEnd says whether and how the replica's pod has ended: as it was watched to, where it is being deleted since.
func (r *replica) podEnd() ending {
	end := r.role.classify(r.pod)
	if end == disrupted && r.watched != nil {
		return r.role.lastState(r.watched)
	}
	return end
}

// shown is the pod that tells what became of the replica: its own, or the one that has succeeded and gone. It may be nil.
func (r *replica) shown() *corev1.Pod {
	if r.pod == nil && r.result != notEnded {
		return r.watched
	}
	return r.pod
}

// knownUID is the UID of the replica's pod, or of the one that the last status knows where there is none any more.
func (r *replica) knownUID() types.UID {
	if r.pod != nil {
		return r.pod.UID
	}
	return types.UID(r.past.uid)
}

// observeDebugEnd handles a debug command that has ended. It is no result, and whoever debugs wants to go on, so the pod is
// replaced like one that was taken away.
func (r *replica) observeDebugEnd(cfg *Config) {
	r.result, r.disrupted, r.create, r.remove = notEnded, true, true, true
	r.reason = reasonDebugEnded
	r.backoff = r.nextBackoff(cfg)
}

// succeededFirst tells whether a pod had succeeded for good before it was replaced by a restart of all, which did not see that yet.
func (r *replica) succeededFirst(end ending) bool {
	restart := &r.role.Restart
	return end == succeeded && restart.All && !restart.OnSuccess && r.pod.Annotations[batch.AnnotationRunMode] != string(batch.RunDebug)
}

// noteFailure notes the incident in which a pod failed by itself that the incident has superseded.
func (p *pass) noteFailure(r *replica) {
	last := p.old.Incident
	if r.superseded && last != nil && last.RecoveryTime == nil && r.role.classify(r.pod) == failed &&
		count(r.pod.Annotations[batch.AnnotationJobRestarts]) == p.incidents()-1 && !r.endedAt().Before(last.StartTime.Time) {
		r.incident = p.incidents()
	}
}

// endedAt is when the replica's pod ended, or began to be taken away; zero where nobody can tell.
func (r *replica) endedAt() time.Time {
	pod := r.shown()
	if pod == nil {
		return time.Time{}
	}
	_, finished := r.role.lifetime(pod)
	if r.disrupted || finished.IsZero() {
		if asked := deletionAsked(pod); !asked.IsZero() {
			return asked
		}
		if c := disruption(pod); c != nil && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.Time
		}
	}
	return finished
}

// hadStarted tells whether the pod that is being replaced had started, as far as is known. Of a pod that the last status does not
// know, nobody can tell why it went.
func (r *replica) hadStarted() bool {
	if r.past.phase == "" {
		return false
	}
	return r.past.phase == batch.ReplicaRunning || r.pod != nil && !startedAt(r.pod).IsZero()
}

// observeAbsent handles a replica without a pod: one that has not been created yet, one that finished and was deleted
// afterwards, or one whose pod was taken away.
func (r *replica) observeAbsent(keepResults bool) {
	if end := r.past.finalResult(); end != notEnded && keepResults {
		r.result, r.exit, r.phase, r.reason = end, r.past.exit, r.past.phase, r.past.reason
		return
	}
	if r.watched != nil && r.role.lastState(r.watched) == succeeded && !r.role.Restart.OnSuccess {
		r.result, r.exit, r.phase = succeeded, r.role.exitCode(r.watched), batch.ReplicaSucceeded
		return
	}
	r.phase, r.create = batch.ReplicaCreating, true
	if r.past.uid != "" { // it had a pod, and nobody here removed it
		r.disrupted = true
		r.reason = r.past.reason
	}
}

// observeDisrupted handles a pod that ended, or is being deleted, through no doing of its own.
func (r *replica) observeDisrupted(cfg *Config) {
	r.disrupted, r.create, r.remove = true, true, true
	r.phase = batch.ReplicaDeleted
	switch {
	case r.pod.Status.Reason != "":
		r.reason = r.pod.Status.Reason
	case disruptionReason(r.pod) != "":
		r.reason = disruptionReason(r.pod)
	case r.pod.DeletionTimestamp != nil:
		r.reason = "Terminating"
	default:
		r.reason = "Disrupted"
	}
	if r.pod.DeletionTimestamp == nil {
		r.dueAt = r.nextStart(cfg)
		r.backoff = r.nextBackoff(cfg)
	}
}

// wrongMode tells whether a pod was made for another run mode. A pod that finished before a pause keeps its result.
func wrongMode(pod *corev1.Pod, mode batch.RunModeType, end ending) bool {
	made := batch.RunModeType(pod.Annotations[batch.AnnotationRunMode])
	switch {
	case made == mode:
		return false
	case made == batch.RunDebug || mode == batch.RunDebug:
		return true
	default:
		return mode != batch.RunPause && end == notEnded
	}
}

// nextBackoff is the number of replacements in a row once the pod has been replaced.
func (r *replica) nextBackoff(cfg *Config) int32 {
	if started, finished := r.role.lifetime(r.pod); finished.Sub(started) >= cfg.BackoffReset {
		return 1
	}
	return count(r.pod.Annotations[batch.AnnotationBackoff]) + 1
}

// nextStart is the earliest time for the pod's replacement: at once the first time, then after BackoffBase, doubling up to
// BackoffMax.
func (r *replica) nextStart(cfg *Config) time.Time {
	_, finished := r.role.lifetime(r.pod)
	if finished.IsZero() {
		finished = disruptedAt(r.pod)
	}
	return finished.Add(backoffDelay(r.nextBackoff(cfg), cfg))
}

// backoffDelay is the delay before the n-th replacement in a row.
func backoffDelay(n int32, cfg *Config) time.Duration {
	if n <= 1 {
		return 0
	}
	d := cfg.BackoffBase
	for i := int32(2); i < n && d < cfg.BackoffMax; i++ {
		d *= 2
	}
	return min(d, cfg.BackoffMax)
}

// disruptedAt is when a pod was taken away that has no ended container to tell.
func disruptedAt(pod *corev1.Pod) time.Time {
	at := pod.CreationTimestamp.Time
	for i := range pod.Status.Conditions {
		if t := pod.Status.Conditions[i].LastTransitionTime.Time; t.After(at) {
			at = t
		}
	}
	return at
}

// waitingReason is the reason for which a container of the pod does not start, for example ImagePullBackOff.
func waitingReason(pod *corev1.Pod) string {
	if w := waitingContainer(pod); w != nil {
		return w.Reason
	}
	return ""
}

// waitingContainer is the state of the first container that has been held up for a reason worth telling.
func waitingContainer(pod *corev1.Pod) *corev1.ContainerStateWaiting {
	for _, cs := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range cs {
			w := cs[i].State.Waiting
			if w != nil && w.Reason != "" && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
				return w
			}
		}
	}
	return nil
}

// exitCode is that of the first container that failed, of those that count, or 0 where all that ended succeeded; nil where none has ended.
func (x *Role) exitCode(pod *corev1.Pod) *int32 {
	var code *int32
	for t := range x.ends(pod) {
		if code == nil || *code == 0 {
			code = &t.ExitCode
		}
	}
	return code
}

// endReason is what the kubelet says of the pod's failure, for example OOMKilled.
func (x *Role) endReason(pod *corev1.Pod) string {
	if pod.Status.Reason != "" && !stopped(pod) {
		return pod.Status.Reason
	}
	for t := range x.ends(pod) {
		if t.ExitCode != 0 && t.Reason != "Error" {
			return t.Reason
		}
	}
	return ""
}
