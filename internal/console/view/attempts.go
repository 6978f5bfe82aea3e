package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/observed"
)

// attempt is the lifetime of one pod of a replica. number counts from 0, and over is when the attempt ended. Unknown
// times and those that are not reached yet are zero.
type attempt struct {
	// uid is the UID of the pod; empty if neither the console nor the archive has seen the pod.
	uid                               string
	number                            int
	created, scheduled, started, over time.Time
	node                              string
	// end is how the attempt ended: stateSucceeded, stateFailed, stateEvicted or stateStopped; empty until it ends.
	end state
	// detail describes the end, for example "exit code 1".
	detail string
	// guessed is true if times of the attempt are estimates, because the console never saw the pod, or if its end is an
	// estimate of the archive.
	guessed bool
}

// lane is one replica with its attempts, oldest first.
type lane struct {
	role     string
	rank     int
	attempts []attempt
	// restarts is true if the replica will get another attempt. paused is true if it will get one when the job is
	// resumed.
	restarts, paused bool
	// pauses are the pauses of the job.
	pauses []interval
}

func (l *lane) name() string { return l.role + "-" + strconv.Itoa(l.rank) }

// lanesOf returns the attempts of every replica, sorted by role in the order of the status and then by rank, and the
// pauses of the job. Replicas that scaling has removed are included. lanesOf uses pods, archived attempts, events,
// conditions and the status of the job.
func (in *JobInput) lanesOf() (all []lane, pauses []interval) {
	lanes := map[string]*lane{}
	var order []string
	add := func(name, role string, rank int) *lane {
		l := lanes[name]
		if l == nil {
			l = &lane{role: role, rank: rank}
			lanes[name], order = l, append(order, name)
		}
		return l
	}
	s := in.Job.Status()
	for i := range s.Tasks {
		t := &s.Tasks[i]
		for k := range t.Replicas {
			l := add(t.Replicas[k].Name, t.Type, observed.RankOf(t.Replicas[k].Name))
			if r := &t.Replicas[k]; s.CompletionTime == nil {
				l.restarts, l.paused = r.Reason == engine.ReasonBackOff || r.Phase == batch.ReplicaCreating, r.Phase == batch.ReplicaDeleted
			}
		}
		for _, o := range t.Omitted {
			engine.EachRank(o.Ranks, maxLanes, func(rank int) {
				add(engine.ReplicaName(in.Job.GetName(), t.Type, rank), t.Type, rank)
			})
		}
	}
	for _, p := range in.Pods {
		rank, err := strconv.Atoi(p.Labels[batch.LabelReplicaRank])
		if err != nil {
			continue
		}
		l := add(p.Name, p.Labels[batch.LabelReplicaType], rank)
		l.attempts = append(l.attempts, attemptOf(p))
	}
	for _, a := range in.Attempts {
		l := add(a.Replica, a.Role, a.Rank)
		l.attempts = append(l.attempts, attemptOfArchive(a))
	}
	pauses = in.pauses(lanes)
	pods, ends := in.attemptsOf(), in.ends()
	for name, l := range lanes {
		l.pauses = pauses
		in.complete(l, pods[name], ends[name])
	}
	in.addUnseen(lanes)
	roles := map[string]int{}
	for i := range s.Tasks {
		roles[s.Tasks[i].Type] = i
	}
	all = make([]lane, 0, len(order))
	for _, name := range order {
		all = append(all, *lanes[name])
	}
	slices.SortStableFunc(all, func(a, b lane) int {
		return cmp.Or(cmp.Compare(roles[a.role], roles[b.role]), cmp.Compare(a.rank, b.rank))
	})
	return all, pauses
}

// complete sorts the attempts of a lane, adds attempts whose pods the console did not see, and describes the ends of
// attempts that a pause ended. addEarlier explains first and ends.
func (in *JobInput) complete(l *lane, first int, ends []replaced) {
	slices.SortFunc(l.attempts, func(a, b attempt) int {
		return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.number, b.number))
	})
	in.addEarlier(l, first, ends)
	for i := range l.attempts {
		if a := &l.attempts[i]; a.end == stateStopped && l.pausedDuring(a) {
			a.detail = byPause
		}
	}
}

// maxLanes is the largest number of replicas that a timeline adds from one list of omitted replicas in the status.
const maxLanes = 20_000

// attemptOf returns the attempt of a pod.
func attemptOf(p *corev1.Pod) attempt {
	number, _ := strconv.Atoi(p.Labels[batch.LabelReplicaAttempt])
	a := attempt{uid: string(p.UID), number: number, created: p.CreationTimestamp.Time, node: p.Spec.NodeName, over: observed.LastEnd(p)}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			a.scheduled = c.LastTransitionTime.Time
		}
	}
	for i := range p.Status.ContainerStatuses {
		s := &p.Status.ContainerStatuses[i].State
		switch {
		case s.Running != nil:
			a.started = earlier(a.started, s.Running.StartedAt.Time)
		case s.Terminated != nil:
			a.started = earlier(a.started, s.Terminated.StartedAt.Time)
		}
	}
	a.finish(p)
	return a
}

// finish sets end, detail and over from the pod of the attempt. A pod that is being deleted counts as ended, even if
// its containers still run.
func (a *attempt) finish(p *corev1.Pod) {
	end := observed.End(p)
	over := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	switch {
	case !over && p.DeletionTimestamp == nil:
		a.over = time.Time{} // other containers are still running
		return
	case end.Disrupted || !over && observed.Disruption(p) != nil:
		a.end, a.detail = stateEvicted, "evicted"
	case !end.Succeeded && !end.Failed || observed.Stopped(p):
		a.end, a.detail = stateStopped, "stopped"
	case end.Succeeded:
		a.end, a.detail = stateSucceeded, "succeeded"
	default:
		a.end, a.detail = stateFailed, failureText(end.ExitCode, end.Cause())
	}
	if a.over.IsZero() {
		a.over = deletedAt(p)
	}
}

// failureText describes a failure by its exit code and its cause.
func failureText(code *int32, cause string) string {
	cause = observed.OneLine(cause)
	switch {
	case code == nil || *code == 0:
		return cmp.Or(cause, "failed")
	case cause == "" || cause == "Error":
		return fmt.Sprintf("exit code %d", *code)
	}
	return fmt.Sprintf("exit code %d, %s", *code, cause)
}

// deletedAt returns when the deletion of a pod was requested. If it was not requested, deletedAt returns the creation
// time of the pod.
func deletedAt(p *corev1.Pod) time.Time {
	switch {
	case p.DeletionTimestamp == nil:
		return p.CreationTimestamp.Time
	case p.DeletionGracePeriodSeconds == nil:
		return p.DeletionTimestamp.Time
	}
	return p.DeletionTimestamp.Add(-time.Duration(*p.DeletionGracePeriodSeconds) * time.Second)
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// replaced is the end of an attempt that an event reports, and the time of the event.
type replaced struct {
	at  time.Time
	end engine.ReplicaEnd
}

// ends returns the ends of attempts that the events report, by replica name, oldest first.
func (in *JobInput) ends() map[string][]replaced {
	all := map[string][]replaced{}
	for _, event := range in.Events {
		ends, _, _ := observed.Ends(event)
		for _, e := range ends {
			all[e.Replica] = append(all[e.Replica], replaced{observed.EventTime(event), e})
		}
	}
	return all
}

// addEarlier adds attempts whose pods the console did not see. It derives them from ends, which the events report, and
// from pauses, which end running attempts. first is the number of pods that the replica had before its current pod.
func (in *JobInput) addEarlier(l *lane, first int, ends []replaced) {
	for _, a := range l.attempts {
		first = min(first, a.number)
	}
	var past []attempt
	for _, e := range slices.Backward(ends) {
		if len(past) < first && !covered(l, e.at) && (e.end.ExitCode != nil || !l.pausedAt(e.at)) {
			past = append(past, e.attempt())
		}
	}
	for _, p := range slices.Backward(l.pauses) {
		if len(past) < first && !l.knows(p.from) {
			past = append(past, attempt{over: p.from, end: stateStopped, detail: byPause, guessed: true})
		}
	}
	slices.SortFunc(past, func(a, b attempt) int { return a.over.Compare(b.over) })
	begin := in.begin()
	for i := range past {
		begin = l.resumed(begin, past[i].over)
		past[i].number, past[i].created, past[i].started = first-len(past)+i, begin, begin
		begin = past[i].over
	}
	l.attempts = append(past, l.attempts...)
}

// byPause describes the end of an attempt that was stopped by a pause.
const byPause = "stopped by a pause"

// attempt returns the attempt whose end an event reports. The caller sets its number and its start.
func (r *replaced) attempt() attempt {
	e := &r.end
	a := attempt{over: r.at, end: stateEvicted, detail: cmp.Or(e.Reason, "replaced"), guessed: true}
	if e.Restart > 0 {
		a.end, a.detail = stateFailed, "ended"
	}
	if e.ExitCode != nil {
		a.detail = fmt.Sprintf("exit code %d", *e.ExitCode)
		if *e.ExitCode == 0 {
			a.end = stateSucceeded
		}
	}
	return a
}

// knows reports whether the first attempt of the lane had been created by a time, so that the lane shows the replica's
// state at that time.
func (l *lane) knows(at time.Time) bool {
	return len(l.attempts) > 0 && !l.attempts[0].created.After(at)
}

// resumed returns the end of the last pause that ended between two times; without such a pause, it returns from. The
// replica cannot have run during a pause.
func (l *lane) resumed(from, to time.Time) time.Time {
	for _, p := range l.pauses {
		if p.to.After(from) && p.to.Before(to) {
			from = p.to
		}
	}
	return from
}

// covered reports whether an event at the time at describes the end of an attempt that the lane already has.
func covered(l *lane, at time.Time) bool {
	for i := range l.attempts {
		a := &l.attempts[i]
		if a.end != "" && !a.guessed && !at.Before(a.over.Truncate(time.Second)) && at.Sub(a.over) < coverTime {
			return true
		}
	}
	return false
}

// coverTime is the longest time from the end of a pod to the event that reports it.
const coverTime = 30 * time.Second

// attemptsOf returns the number of earlier pods of each replica, by replica name. It leaves out the replicas that the
// status does not list one by one.
func (in *JobInput) attemptsOf() map[string]int {
	all := map[string]int{}
	s := in.Job.Status()
	for i := range s.Tasks {
		for k := range s.Tasks[i].Replicas {
			r := &s.Tasks[i].Replicas[k]
			all[r.Name] = int(r.Attempt)
		}
	}
	return all
}

// addUnseen adds an attempt to each replica that the status lists as ended or deleted and whose pod the console did not
// see, so that its lane shows the end.
func (in *JobInput) addUnseen(lanes map[string]*lane) {
	s := in.Job.Status()
	for i := range s.Tasks {
		for k := range s.Tasks[i].Replicas {
			r := &s.Tasks[i].Replicas[k]
			l, end := lanes[r.Name], endOf[r.Phase]
			last := int(r.Attempt)
			if r.Phase == batch.ReplicaDeleted && r.UID == "" { // the status already counts the next pod
				last = max(0, last-1)
			}
			n := len(l.attempts)
			if end == "" || s.StartTime == nil || n > 0 && l.attempts[n-1].number >= last {
				continue
			}
			a := attempt{number: last, created: in.begin(), over: in.end(), end: end, guessed: true, detail: cmp.Or(observed.Detail(r), string(end)), node: r.NodeName}
			if n > 0 {
				a.created = l.attempts[n-1].over
			}
			if end == stateStopped {
				a.detail = string(end)
				if n := len(l.pauses); n > 0 && l.paused {
					a.over = l.pauses[n-1].from
				}
			}
			a.created = l.resumed(a.created, a.over)
			a.started = a.created
			l.attempts = append(l.attempts, a)
		}
	}
}

// endOf maps the phase of a replica to the end of its attempt.
var endOf = map[batch.ReplicaPhase]state{batch.ReplicaSucceeded: stateSucceeded, batch.ReplicaFailed: stateFailed, batch.ReplicaDeleted: stateStopped}
