package view

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/kinds/kindtest"
	"tensorstack.dev/batch/internal/observed"
	"tensorstack.dev/batch/internal/testing/golden"
)

// life is a job for tests of timelines. Its methods take times in minutes after the creation of the job.
type life struct {
	in  *JobInput
	job *batch.GenericJob
}

func newLife(now int, roles map[string]int32) *life {
	job := &batch.GenericJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j", UID: "job", CreationTimestamp: minute(0)}}
	job.Status.StartTime = new(minute(0))
	for _, role := range []string{"ps", "w"} {
		if n := roles[role]; n > 0 {
			job.Spec.ReplicaSpecs = append(job.Spec.ReplicaSpecs, batch.ReplicaSpec{Type: role, Replicas: &n})
			job.Status.Tasks = append(job.Status.Tasks, batch.Tasks{Type: role})
		}
	}
	return &life{&JobInput{Job: &observed.Job{Kind: kindtest.Named("GenericJob"), Object: job}, Now: minute(now).Time}, job}
}

func minute(n int) metav1.Time { return at(60 * n) }

// pod adds a pod of a replica. The pod was created and started running at created, and was stopped at stopped. If
// stopped is 0, the pod is still running.
func (l *life) pod(role string, rank, attempt, created, stopped int) {
	name := fmt.Sprintf("j-%s-%d", role, rank)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(fmt.Sprintf("%s-%d", name, created)), CreationTimestamp: minute(created),
		Labels: map[string]string{batch.LabelReplicaType: role, batch.LabelReplicaRank: strconv.Itoa(rank), batch.LabelReplicaAttempt: strconv.Itoa(attempt)}}}
	p.Spec.NodeName, p.Status.Phase = "n1", corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: minute(created)}}
	state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: minute(created)}}
	if stopped > 0 { // like the kubelet's last update of a pod with a grace period of a minute
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds, p.Status.Phase = new(minute(stopped+1)), new(int64(60)), corev1.PodFailed
		state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: minute(created), FinishedAt: minute(stopped), ExitCode: 143}}
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: state}}
	l.in.Pods = append(l.in.Pods, p)
}

// ended changes a stopped pod to one that ended by itself in the given phase, and was deleted afterwards.
func ended(p *corev1.Pod, phase corev1.PodPhase) {
	p.Status.Phase, p.DeletionGracePeriodSeconds, p.DeletionTimestamp = phase, new(int64), new(metav1.NewTime(p.DeletionTimestamp.Add(-time.Minute)))
}

// replica adds the status of a replica.
func (l *life) replica(role string, rank int, phase batch.ReplicaPhase, attempt int32) {
	i := slices.IndexFunc(l.job.Status.Tasks, func(t batch.Tasks) bool { return t.Type == role })
	l.job.Status.Tasks[i].Replicas = append(l.job.Status.Tasks[i].Replicas, batch.ReplicaStatus{Name: fmt.Sprintf("j-%s-%d", role, rank), Phase: phase, Attempt: attempt})
}

func (l *life) event(reason batch.Reason, at int) {
	l.in.Events = append(l.in.Events, &corev1.Event{Reason: string(reason), LastTimestamp: minute(at)})
}

// paused adds the condition Paused to the status. reason is Paused, Resumed or NotPaused. If it is Paused, the job gets
// the phase Paused.
func (l *life) paused(reason batch.Reason, since int) {
	c := batch.JobCondition{Type: batch.JobPausedCondition, Status: metav1.ConditionFalse, Reason: reason, LastTransitionTime: minute(since)}
	if reason == batch.ReasonPaused {
		c.Status, l.job.Status.Phase = metav1.ConditionTrue, batch.JobPaused
	}
	l.job.Status.Conditions = append(l.job.Status.Conditions, c)
}

// lives holds the jobs whose timelines are compared with golden files, by the name of the file without timeline- and
// its extension.
var lives = map[string]func() *life{
	"paused-two-pods": func() *life {
		l := newLife(120, map[string]int32{"w": 2})
		l.paused(batch.ReasonPaused, 30)
		l.event(batch.EventJobPaused, 30)
		for rank := range 2 {
			l.pod("w", rank, 0, 0, 31)
			l.replica("w", rank, batch.ReplicaDeleted, 1)
		}
		return l
	},
	"resumed": func() *life { // resumed twice; the events of the first pause have expired
		l := newLife(300, map[string]int32{"w": 1})
		l.paused(batch.ReasonResumed, 270)
		l.event(batch.EventJobPaused, 250)
		l.event(batch.EventJobResumed, 270)
		l.pod("w", 0, 0, 0, 60)
		l.pod("w", 0, 1, 120, 251)
		l.pod("w", 0, 2, 272, 0)
		l.replica("w", 0, batch.ReplicaRunning, 2)
		return l
	},
	// The condition shows when the job was resumed, and the pods show when they were stopped.
	"resumed-long-ago": func() *life {
		l := newLife(300, map[string]int32{"w": 2})
		l.paused(batch.ReasonResumed, 120)
		for rank := range 2 {
			l.pod("w", rank, 0, 0, 40)
			l.pod("w", rank, 1, 120, 0)
			l.replica("w", rank, batch.ReplicaRunning, 1)
		}
		return l
	},
	"paused-unseen": func() *life { // the console started after the pause
		l := newLife(120, map[string]int32{"w": 2})
		l.paused(batch.ReasonPaused, 90)
		l.event(batch.EventJobPaused, 30)
		l.event(batch.EventJobResumed, 60)
		l.event(batch.EventJobPaused, 90)
		l.event(batch.EventReplicaDisrupted, 91)
		l.in.Events[3].Annotations = map[string]string{batch.AnnotationReplicaEnds: `[{"replica":"j-w-0","reason":"Terminating"}]`}
		l.replica("w", 0, batch.ReplicaDeleted, 2)
		l.replica("w", 1, batch.ReplicaPending, 0)
		return l
	},
	"paused-shortly": func() *life { // the job was resumed before its pods had ended
		l := newLife(100, map[string]int32{"w": 1})
		l.paused(batch.ReasonResumed, 52)
		l.event(batch.EventJobPaused, 50)
		l.event(batch.EventJobResumed, 52)
		l.pod("w", 0, 0, 0, 60)
		l.pod("w", 0, 1, 64, 0)
		l.replica("w", 0, batch.ReplicaRunning, 1)
		return l
	},
	"paused-in-backoff": func() *life {
		l := newLife(100, map[string]int32{"w": 1})
		l.paused(batch.ReasonPaused, 50)
		l.pod("w", 0, 0, 0, 40)
		ended(l.in.Pods[0], corev1.PodFailed)
		l.replica("w", 0, batch.ReplicaDeleted, 1)
		return l
	},
	"scaled": func() *life { // down and up again, after rank 1 had restarted once
		l := newLife(200, map[string]int32{"w": 2})
		l.pod("w", 0, 0, 0, 0)
		l.pod("w", 1, 0, 0, 20)
		l.pod("w", 1, 1, 30, 60)
		l.pod("w", 1, 0, 150, 0)
		l.pod("w", 2, 0, 0, 60)
		l.replica("w", 0, batch.ReplicaRunning, 0)
		l.replica("w", 1, batch.ReplicaRunning, 0)
		return l
	},
	"two-roles": func() *life {
		l := newLife(200, map[string]int32{"ps": 1, "w": 1})
		l.paused(batch.ReasonResumed, 100)
		l.event(batch.EventJobPaused, 50)
		l.event(batch.EventJobResumed, 100)
		l.pod("ps", 0, 0, 0, 55)
		l.pod("ps", 0, 1, 100, 0)
		l.pod("w", 0, 0, 0, 30)
		ended(l.in.Pods[2], corev1.PodSucceeded)
		l.replica("ps", 0, batch.ReplicaRunning, 1)
		l.replica("w", 0, batch.ReplicaSucceeded, 0)
		return l
	},
}

func (in *JobInput) wholeTimeline() Timeline { return in.timeline(in.lanesOf()) }

func TestTimelinesShowTheLivesOfReplicas(t *testing.T) {
	for name, life := range lives {
		t.Run(name, func(t *testing.T) {
			golden.Compare(t, "testdata/timeline-"+name+".golden", asYAML(t, life().in.wholeTimeline()))
		})
	}
}

// TestTimelineOfAJobThatWasDeletedWhilePaused verifies that archived conditions show pauses whose events are lost, and
// that the last pause and the timeline end when the job is deleted.
func TestTimelineOfAJobThatWasDeletedWhilePaused(t *testing.T) {
	l := newLife(200, map[string]int32{"w": 1})
	l.paused(batch.ReasonPaused, 100)
	l.pod("w", 0, 0, 0, 20)
	l.pod("w", 0, 1, 60, 101)
	l.replica("w", 0, batch.ReplicaDeleted, 2)
	d := archivedOf(t, l.in, func(d *archive.JobDetails) {
		c := d.Conditions[0]
		for since, reason := range map[int]batch.Reason{0: batch.ReasonNotPaused, 20: batch.ReasonPaused, 60: batch.ReasonResumed} {
			c.Status, c.Reason, c.Since = "False", string(reason), minute(since).Time
			if reason == batch.ReasonPaused {
				c.Status = "True"
			}
			d.Conditions = append(d.Conditions, c)
		}
		d.Gone = minute(150).Time
		for i := range d.Attempts {
			d.Attempts[i].Outcome, d.Attempts[i].Ended = archive.Stopped, minute([]int{20, 101}[i]).Time
		}
	})
	p, err := HistoryJob(d, "", minute(500).Time)
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/timeline-archived-paused.golden", asYAML(t, p.Timeline))
}

// TestPausedReplicasAreNoTrouble verifies that neither grouped lanes nor a heat map show segments for the paused
// replicas of a large job, and that the timeline shows the pause. A single replica that still runs has at most the
// lightest shade.
func TestPausedReplicasAreNoTrouble(t *testing.T) {
	for _, n := range []int{200, 2000} {
		l := newLife(200, map[string]int32{"w": int32(n)})
		l.paused(batch.ReasonResumed, 150)
		l.event(batch.EventJobPaused, 50)
		l.event(batch.EventJobResumed, 150)
		for rank := range n {
			l.pod("w", rank, 0, 0, 50)
			l.pod("w", rank, 1, 150, 0)
		}
		l.pod("w", 0, 0, 0, 0)
		l.in.Pods = slices.Delete(l.in.Pods, 0, 2) // the pod of rank 0 does not end
		timeline := l.in.wholeTimeline()
		if !timeline.Paused() {
			t.Errorf("%d replicas: no pause is shown", n)
		}
		for _, lane := range timeline.Lanes {
			for _, s := range lane.Segments {
				middle := s.X + s.W/2
				if s.State == string(stateRestarting) || middle > 26 && middle < 74 && s.State != string(stateRunning) {
					t.Errorf("%d replicas, %s: at %v %s: %s", n, lane.Label, s.X, s.State, s.Title)
				}
				if middle > 26 && middle < 74 && s.Heat > 1 {
					t.Errorf("%d replicas, %s: one replica that runs has shade %d: %s", n, lane.Label, s.Heat, s.Title)
				}
			}
		}
	}
}

// TestEarlierAttempts verifies that the page of a job lists ended attempts that the rows of replicas do not show,
// newest first, and that their number is limited.
func TestEarlierAttempts(t *testing.T) {
	l := lives["scaled"]()
	l.in.Taken = func(string) bool { return false }
	for i := range l.job.Status.Tasks[0].Replicas {
		l.job.Status.Tasks[0].Replicas[i].UID = "present"
	}
	show := func(p JobPage) (all []string) {
		for _, a := range p.Earlier {
			all = append(all, fmt.Sprintf("%s %d %s %s", a.Replica, a.Number, a.End, Age(a.Ran)))
		}
		return all
	}
	want := []string{"w-1 2 stopped 30m", "w-2 1 stopped 1h", "w-1 1 stopped 20m"}
	if diff := cmp.Diff(want, show(JobOf(l.in, ""))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for n := range 2 * shownEarlier {
		l.pod("w", 0, n+1, 200+n, 201+n)
	}
	p := JobOf(l.in, "")
	if len(p.Earlier) != shownEarlier || p.MoreEarlier != shownEarlier+len(want)-1 || p.Earlier[0].Number != 2*shownEarlier {
		t.Errorf("%d are listed and %d are not; the first one is %+v", len(p.Earlier), p.MoreEarlier, p.Earlier[0])
	}
}
