package engine

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// replica is the state of one replica during a pass.
type replica struct {
	Member
	role *Role
	name string
	// past is the replica's record in the last status.
	past record
	// pod is the replica's current pod; nil if there is none.
	pod *corev1.Pod

	// phase and reason go into the next status.
	phase  batch.ReplicaPhase
	reason string
	// restarts, attempt and backoff are the counts for the next status. incident is the number of the last incident in
	// which the replica ended by itself; zero if there is none.
	restarts, attempt, backoff, incident int32
	// exit is the exit code of a replica that has ended by itself; nil if it is unknown.
	exit *int32
	// uid is the UID of the pod that the status refers to; empty if it refers to none.
	uid string

	// result is succeeded or failed if the replica ended by itself, even if it will be restarted.
	result ending
	// due is true if a restart after result is allowed. fresh is true if the restart to which the replica's end leads
	// belongs to a new incident, not to the open one.
	due, fresh bool
	// consequence is true if the replica failed and restarts only because all replicas do.
	consequence bool
	// dueAt is the earliest time at which the pod of an ended or disrupted replica may be replaced; zero means
	// immediately.
	dueAt time.Time
	// create is true if a pod must be created, now or once the old one has been deleted.
	create bool
	// remove is true if the pod must be deleted.
	remove bool
	// disrupted is true while a disrupted pod is being replaced. ran is true if that pod is known to have run in the
	// current run mode.
	disrupted, ran bool
	// superseded is true while the replica's pod is one that a restart has replaced, or one that ended before a
	// scale-down (see returned).
	superseded bool
	// watched is the replica's pod as last observed before its deletion, if it had succeeded by then; otherwise nil.
	watched *corev1.Pod
	// returned is true if a status exists that has no record of the replica: its rank is new, or was removed by an
	// earlier scale-down. If its pod has ended, the pod is from that earlier time and its end may already have been
	// counted.
	returned bool
}

// reasonDebugEnded marks a replica whose debug command has ended.
const reasonDebugEnded = "DebugCommandEnded"

// reasonModeChanged marks a replica whose pod was created for another run mode.
const reasonModeChanged = "RunModeChanged"

// record is the part of a status that describes one replica.
type record struct {
	uid                                  string
	phase                                batch.ReplicaPhase
	restarts, attempt, backoff, incident int32
	exit                                 *int32
	reason                               string
	containers                           []batch.ContainerStatus
}

// finalResult returns the result in the record; notEnded if it has none.
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

// final reports whether the replica has ended for good.
func (r *replica) final() bool { return r.result != notEnded && !r.due }

// observe sets the replica's state from its pod and its record. keepResults is true if recorded results still count.
func (r *replica) observe(p *pass, keepResults bool) {
	r.restarts, r.attempt, r.backoff, r.incident = r.past.restarts, r.past.attempt, r.past.backoff, r.past.incident
	r.uid = r.past.uid
	if keepResults && r.recordIsNewer() {
		// The result must not be lost. The pod that has it may still exist.
		p.plan.Refresh = p.plan.Refresh || !p.seen.Live
		r.pod = nil
	}
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
		end = recorded // the end was recorded before the pod was deleted, or a stale cache shows an older state
	}
	r.observePod(p, end)
}

// observePod sets the replica's state from its current pod and from how that pod has ended.
func (r *replica) observePod(p *pass, end ending) {
	switch {
	case wrongMode(r.pod, p.mode, end):
		r.phase, r.reason = batch.ReplicaDeleted, reasonModeChanged
		r.remove, r.create = true, true
	case end == notEnded:
		r.phase = podPhase(r.pod)
		r.reason = waitingReason(r.pod)
	case end == disrupted:
		r.observeDisrupted(p)
	default:
		r.result, r.exit = end, r.endCode()
		r.phase = batch.ReplicaSucceeded
		if end == failed {
			r.phase, r.reason = batch.ReplicaFailed, r.role.endReason(r.pod)
		}
		r.dueAt = p.nextStart(r)
		if p.mode == batch.RunDebug {
			r.observeDebugEnd(p.cfg)
		}
	}
}

// recordIsNewer reports whether the status has the result of a later pod than the observed one. The cache of a new
// leader may be that stale. Both pods have the same name, so the observed one no longer exists.
func (r *replica) recordIsNewer() bool {
	return r.pod != nil && r.past.finalResult() != notEnded && r.past.uid != string(r.pod.UID) &&
		count(r.pod.Labels[batch.LabelReplicaAttempt]) < r.past.attempt
}

// endCode returns the exit code of the replica's pod. It falls back to the recorded code, because the cache of a new
// leader may show the pod before the end that the status records.
func (r *replica) endCode() *int32 {
	if code := r.role.exitCode(r.pod); code != nil || r.past.uid != r.uid {
		return code
	}
	return r.past.exit
}

// podEnd returns how the replica's pod has ended. If a watch showed that the pod succeeded before its deletion, the
// success counts.
func (r *replica) podEnd() ending {
	end := r.role.classify(r.pod)
	if end == disrupted && r.watched != nil {
		return r.role.lastState(r.watched)
	}
	return end
}

// shown returns the pod that shows the replica's state: its current pod, or the watched pod if that succeeded and no
// longer exists. It may be nil.
func (r *replica) shown() *corev1.Pod {
	if r.pod == nil && r.result != notEnded {
		return r.watched
	}
	return r.pod
}

// knownUID returns the UID of the replica's pod; without a pod, the UID in the last status.
func (r *replica) knownUID() types.UID {
	if r.pod != nil {
		return r.pod.UID
	}
	return types.UID(r.past.uid)
}

// observeDebugEnd handles a debug command that has ended. The end does not count as a result. The pod is replaced as
// after a disruption, so that the user can continue debugging.
func (r *replica) observeDebugEnd(cfg *Config) {
	r.result, r.disrupted, r.create, r.remove = notEnded, true, true, true
	r.reason = reasonDebugEnded
	r.backoff = r.nextBackoff(cfg)
}

// succeededFirst reports whether the success of a superseded pod counts. A restart of all replicas supersedes a pod
// that succeeded for good only if the operator had not observed the success yet.
func (r *replica) succeededFirst(end ending) bool {
	restart := &r.role.Restart
	return end == succeeded && restart.All && !restart.OnSuccess && r.pod.Annotations[batch.AnnotationRunMode] != string(batch.RunDebug)
}

// noteFailure records the last incident in a replica whose superseded pod failed by itself during that incident.
func (p *pass) noteFailure(r *replica) {
	last := p.old.Incident
	if r.superseded && last != nil && last.RecoveryTime == nil && r.role.classify(r.pod) == failed &&
		count(r.pod.Annotations[batch.AnnotationJobRestarts]) == p.incidents()-1 && !r.endedAt().Before(last.StartTime.Time) {
		r.incident = p.incidents()
	}
}

// endedAt returns the time at which the replica's pod ended or its disruption began; zero if it is not known.
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

// hadStarted reports whether the pod that is being replaced is known to have started. It returns false for a replica
// that is not in the last status, because the reason for its absence is not known.
func (r *replica) hadStarted() bool {
	if r.past.phase == "" {
		return false
	}
	return r.past.phase == batch.ReplicaRunning || r.pod != nil && !startedAt(r.pod).IsZero()
}

// observeAbsent handles a replica without a pod: the pod has not been created yet, was deleted after it ended, or was
// removed by others.
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
	if r.past.uid != "" { // it had a pod, and the controller did not delete it
		r.disrupted = true
		r.reason = r.past.reason
	}
}

// observeDisrupted handles a pod that was disrupted: it ended or is being deleted for reasons outside the replica.
func (r *replica) observeDisrupted(p *pass) {
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
		r.dueAt = p.nextStart(r)
		r.backoff = r.nextBackoff(p.cfg)
	}
}

// wrongMode reports whether a pod was created for another run mode and must be replaced. Unless one of the two modes is
// debug, a pod that has ended keeps its result, and pass.pause deletes the pods when a pause begins.
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

// nextBackoff returns the number of consecutive replacements after the pod has been replaced. It is 1 again if the pod
// ran for at least BackoffReset.
func (r *replica) nextBackoff(cfg *Config) int32 {
	if started, finished := r.role.lifetime(r.pod); finished.Sub(started) >= cfg.BackoffReset {
		return 1
	}
	return count(r.pod.Annotations[batch.AnnotationBackoff]) + 1
}

// waitingReason returns the reason why a container of the pod does not start, for example ImagePullBackOff; empty if
// there is none.
func waitingReason(pod *corev1.Pod) string {
	if w := waitingContainer(pod); w != nil {
		return w.Reason
	}
	return ""
}

// waitingContainer returns the waiting state of the first container, init containers first, whose reason for waiting is
// not normal creation; nil if there is none.
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

// exitCode returns the exit code of the first failed container among those that count; 0 if all that ended succeeded;
// nil if none has ended.
func (x *Role) exitCode(pod *corev1.Pod) *int32 {
	if _, t := x.decidingEnd(pod); t != nil {
		return &t.ExitCode
	}
	return nil
}

// decidingEnd returns the end of the container that the exit code of the replica comes from, with the container's name;
// nil if none has ended.
func (x *Role) decidingEnd(pod *corev1.Pod) (name string, end *corev1.ContainerStateTerminated) {
	for n, t := range x.ends(pod) {
		if end == nil || end.ExitCode == 0 {
			name, end = n, t
		}
	}
	return name, end
}

// endReason returns the reason of the pod's failure, for example OOMKilled; empty if there is none or only Error.
func (x *Role) endReason(pod *corev1.Pod) string {
	if pod.Status.Reason != "" && !stopped(pod) {
		return pod.Status.Reason
	}
	for _, t := range x.ends(pod) {
		if t.ExitCode != 0 && t.Reason != "Error" {
			return t.Reason
		}
	}
	return ""
}
