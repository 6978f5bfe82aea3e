package engine

import (
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// play drives one job through passes. It applies each plan's creations and deletions immediately.
type play struct {
	t            *testing.T
	job          *Job
	now          time.Time
	stat         *batch.JobStatus
	pods         map[string]*corev1.Pod
	uids         int
	plan         Plan
	seen         Seen
	cfg          Config
	eventReasons []string // the reasons of the events of each pass, separated by spaces
	// refreshed is true if the last pass asked for live pods.
	refreshed bool
}

// newPlay returns a play of a job with one role, worker, whose replicas restart after failures, each up to limit
// times.
func newPlay(t *testing.T, replicas int, limit int32) *play {
	return &play{t: t, now: start, pods: map[string]*corev1.Pod{}, job: &Job{
		APIVersion: "batch.tensorstack.dev/v1beta1", Kind: "GenericJob", Namespace: "ns", Name: "job", UID: "uid", ClusterDomain: "cluster.local",
		CleanUp: batch.CleanUpNone,
		Roles: []Role{{Type: "worker", Replicas: replicas, Restart: Restart{OnFailure: true, Limit: &limit},
			Template: &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Command: []string{"train"}}}}}}},
	}}
}

// pass calls Next, a second time with live pods if the first plan asks for them, and applies the plan.
func (p *play) pass() *play {
	p.t.Helper()
	s := p.seen
	s.Now, s.Status = p.now, p.stat
	for _, pod := range p.pods {
		s.Pods = append(s.Pods, pod)
	}
	s.Service = true
	p.plan = Next(p.job, s, p.cfg)
	if p.refreshed = p.plan.Refresh; p.refreshed {
		s.Live = true
		if p.plan = Next(p.job, s, p.cfg); p.plan.Refresh {
			p.t.Fatal("the pass asks for live pods again")
		}
	}
	if !p.plan.Contested {
		p.seen.ContestedSince = time.Time{}
	} else if p.seen.ContestedSince.IsZero() {
		p.seen.ContestedSince = p.now
	}
	p.seen.LastPass, p.seen.Ends = p.now, p.plan.Ends
	if p.plan.Status != nil {
		p.stat = p.plan.Status
	} else if events := p.events(); events != "" && events != string(batch.EventNodeLost) {
		p.t.Errorf("events without a status that records the transition: %s", events)
	}
	p.eventReasons = append(p.eventReasons, p.events())
	for _, d := range p.plan.Delete {
		delete(p.pods, d.Name)
	}
	for _, n := range p.plan.Pods {
		pod := p.job.Pod(n)
		p.uids++
		pod.UID, pod.CreationTimestamp = types.UID(strconv.Itoa(p.uids)), metav1.NewTime(p.now)
		pod.Status.Phase = corev1.PodPending
		p.pods[pod.Name] = pod
	}
	return p
}

func (p *play) after(d time.Duration) *play { p.now = p.now.Add(d); return p }

func (p *play) run(ranks ...int) *play {
	for _, r := range ranks {
		pod := p.pod(r)
		pod.Spec.NodeName, pod.Status.Phase = "node", corev1.PodRunning
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main",
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(p.now)}}}}
	}
	return p
}

func (p *play) exit(rank int, code int32) *play {
	pod := p.pod(rank)
	pod.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		pod.Status.Phase = corev1.PodFailed
	}
	started := pod.CreationTimestamp
	if cs := pod.Status.ContainerStatuses; len(cs) > 0 && cs[0].State.Running != nil {
		started = cs[0].State.Running.StartedAt
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, StartedAt: started, FinishedAt: metav1.NewTime(p.now)}}}}
	return p
}

func (p *play) pod(rank int) *corev1.Pod {
	p.t.Helper()
	pod := p.pods["job-worker-"+strconv.Itoa(rank)]
	if pod == nil {
		p.t.Fatalf("replica %d has no pod", rank)
	}
	return pod
}

func (p *play) want(phase batch.JobPhase, restarts int32) *play {
	p.t.Helper()
	if p.stat.Phase != phase || p.stat.BackoffCount != restarts {
		p.t.Fatalf("phase %s with %d restarts, want %s with %d; conditions %+v", p.stat.Phase, p.stat.BackoffCount, phase, restarts, p.stat.Conditions)
	}
	return p
}

func (p *play) wantReason(c batch.JobConditionType, reason batch.Reason) *play {
	p.t.Helper()
	if got := condition(p.stat, c); got.Reason != reason {
		p.t.Fatalf("condition %s has reason %s (%s), want %s", c, got.Reason, got.Message, reason)
	}
	return p
}

func (p *play) events() string {
	var out []string
	for _, e := range p.plan.Events {
		out = append(out, string(e.Reason))
	}
	return strings.Join(out, " ")
}
