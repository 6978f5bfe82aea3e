package engine

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// newIncidents starts a training job of 8 replicas, all running.
func newIncidents(t *testing.T, scope batch.RestartScope, limit int32) *play {
	p := newTraining(t, 8, limit)
	p.job.Roles[0].Restart.All = scope == batch.RestartJob
	return p.pass().runAll().after(time.Minute).pass().want(batch.JobRunning, 0)
}

// runAll starts all pending pods of role worker.
func (p *play) runAll() *play {
	for i := range p.job.Roles[0].Replicas {
		if pod := p.pods[p.job.PodName("worker", i)]; pod != nil && pod.Status.Phase == corev1.PodPending {
			p.run(i)
		}
	}
	return p
}

// recover lets back-off delays elapse and starts new pods, in a number of passes that suffices for all replicas to run
// again.
func (p *play) recover() *play {
	p.t.Helper()
	for range 4 {
		p.after(6 * time.Minute).pass().runAll()
	}
	return p.pass().pass()
}

func (p *play) uidsOf() string {
	var b strings.Builder
	for i := range p.job.Roles[0].Replicas {
		b.WriteString(string(p.pod(i).UID) + " ")
	}
	return b.String()
}

func bothScopes(t *testing.T, f func(*testing.T, batch.RestartScope)) {
	for _, scope := range []batch.RestartScope{batch.RestartReplica, batch.RestartJob} {
		t.Run(string(scope), func(t *testing.T) { f(t, scope) })
	}
}

func TestCollectiveCrashCostsOneRetry(t *testing.T) {
	bothScopes(t, func(t *testing.T, scope batch.RestartScope) {
		p := newIncidents(t, scope, 3)
		for i := range 8 {
			// In scope Job all pods end once the first failures are seen.
			if p.pods[p.job.PodName("worker", (i+3)%8)] != nil {
				p.exit((i+3)%8, 1)
			}
			if i == 4 {
				p.pass()
			}
		}
		p.pass().pass().runAll().pass().want(batch.JobRunning, 1)
		for i := range 8 {
			if p.pod(i).Status.Phase != corev1.PodRunning || p.pod(i).Labels[batch.LabelReplicaAttempt] != "1" {
				t.Errorf("rank %d: %s, attempt %s", i, p.pod(i).Status.Phase, p.pod(i).Labels[batch.LabelReplicaAttempt])
			}
		}
		if p.stat.Restarts != 1 || p.stat.Incident.RecoveryTime == nil {
			t.Errorf("%d incidents, the last one %+v", p.stat.Restarts, p.stat.Incident)
		}
		reasons := strings.Join(p.eventReasons, " ")
		if strings.Count(reasons, "Incident") != 1 || strings.Count(reasons, "Recovered") != 1 {
			t.Errorf("events %s", reasons)
		}
	})
}

func TestCrashLoopEndsAfterTheLimit(t *testing.T) {
	bothScopes(t, func(t *testing.T, scope batch.RestartScope) {
		p := newIncidents(t, scope, 3)
		for i := range int32(3) {
			p.exit(5, 1).recover().want(batch.JobRunning, i+1)
		}
		p.exit(5, 1).pass().want(batch.JobFailed, 3).wantReason(batch.JobFailedCondition, batch.ReasonBackoffLimitExceeded)
		if p.stat.Restarts != 3 {
			t.Errorf("%d incidents, want 3", p.stat.Restarts)
		}
	})
}

func TestScopeDecidesWhoRestarts(t *testing.T) {
	p := newIncidents(t, batch.RestartJob, 3)
	p.exit(7, 0).after(time.Second).pass()
	before := p.uidsOf()
	p.exit(5, 1).recover().want(batch.JobRunning, 1)
	old, now := strings.Fields(before), strings.Fields(p.uidsOf())
	for i := range 8 {
		if same := old[i] == now[i]; same != (i == 7) {
			t.Errorf("rank %d, which has succeeded: %t; keeps its pod: %t", i, i == 7, same)
		}
	}
	if r := p.stat.Tasks[0]; r.RestartCount != 1 || r.Replicas[5].RestartCount != 1 {
		t.Errorf("only rank 5 is charged: %+v", r)
	}

	p = newIncidents(t, batch.RestartReplica, 3)
	before = p.uidsOf()
	p.exit(5, 1).recover()
	for i, uid := range strings.Fields(p.uidsOf()) {
		if same := uid == strings.Fields(before)[i]; same == (i == 5) {
			t.Errorf("scope Replica: rank %d keeps its pod: %t", i, same)
		}
	}
}

// TestSecondFailureBeginsTheNextIncident verifies that failures before all replicas run again belong to the open
// incident, except a second failure of the same replica.
func TestSecondFailureBeginsTheNextIncident(t *testing.T) {
	bothScopes(t, func(t *testing.T, scope batch.RestartScope) {
		p := newIncidents(t, scope, 9)
		p.exit(2, 1).exit(3, 1).pass().pass().wantRestarting(1) // the job waits for both
		p.run(2).after(time.Second).pass()
		// In scope Job this pod is a new one, otherwise the old one.
		p.exit(4, 1).after(time.Minute).pass().pass().wantRestarting(1)
		p.run(2).after(time.Second).exit(2, 1).after(time.Minute).pass().wantRestarting(2)
		if p.stat.Incident.Replica != "job-worker-2" {
			t.Errorf("%s began the incident", p.stat.Incident.Replica)
		}
		p.recover().want(batch.JobRunning, 2)
		p.exit(4, 1).pass().wantRestarting(3)
	})
}

// TestCrashAfterAnUnseenStartIsAnotherIncident verifies that a crash begins another incident if the containers' times
// show that all replicas ran before it, even if no pass observed that. In scope Job, it also verifies that a crash
// before all replicas have started belongs to the open incident.
func TestCrashAfterAnUnseenStartIsAnotherIncident(t *testing.T) {
	bothScopes(t, func(t *testing.T, scope batch.RestartScope) {
		p := newIncidents(t, scope, 9)
		p.exit(2, 1).pass().pass().wantRestarting(1)
		p.runAll().after(2*time.Second).exit(3, 1).after(time.Hour).pass().wantRestarting(2)
		p.pass().run(2, 3).after(time.Second).exit(2, 1)
		if scope == batch.RestartJob { // the other replicas have not started
			p.after(time.Hour).pass().wantRestarting(2)
		}
	})
}

func TestRolesThatNeverRestartAreSpared(t *testing.T) {
	p := newIncidents(t, batch.RestartJob, 9)
	p.job.Roles = append(p.job.Roles, Role{Type: "log", Replicas: 1, Template: p.job.Roles[0].Template})
	p.pass()
	pod := p.pods["job-log-0"]
	pod.Spec.NodeName, pod.Status.Phase = "node", corev1.PodRunning
	p.pass()
	p.exit(2, 1).recover().want(batch.JobRunning, 1)
	if p.pods["job-log-0"] != pod {
		t.Error("the pod of a role that never restarts was replaced")
	}
}

// TestDisruptionRestartsAllUncharged verifies that in scope Job a disruption restarts all replicas and is not charged.
func TestDisruptionRestartsAllUncharged(t *testing.T) {
	for name, disrupt := range map[string]func(*play){
		"deleted": func(p *play) { delete(p.pods, "job-worker-2") },
		"evicted": func(p *play) {
			p.exit(2, 137).pod(2).Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
				Reason: "EvictionByEvictionAPI", LastTransitionTime: metav1.NewTime(p.now)}}
			p.exit(3, 1) // the replica failed because it waited for the disrupted one
		},
		"ending": func(p *play) {
			at, grace := metav1.NewTime(p.now.Add(30*time.Second)), int64(30)
			p.pod(2).DeletionTimestamp, p.pod(2).DeletionGracePeriodSeconds = &at, &grace
			p.pass()
			delete(p.pods, "job-worker-2")
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newIncidents(t, batch.RestartJob, 0)
			disrupt(p)
			p.recover().want(batch.JobRunning, 0)
			if p.stat.Restarts != 1 || p.stat.Incident.Charged || p.stat.Incident.Replica != "job-worker-2" {
				t.Errorf("%d incidents, the last one %+v", p.stat.Restarts, p.stat.Incident)
			}
			for i := range 8 {
				if got := p.pod(i).Labels[batch.LabelReplicaAttempt]; got != "1" {
					t.Errorf("rank %d is in attempt %s", i, got)
				}
			}
			p.exit(5, 1).pass().want(batch.JobFailed, 0)
		})
	}
}

// TestDeletedAndUnstartedPodsBeginNoIncident verifies that pods that the controller deletes, or that never ran, begin
// no incident.
func TestDeletedAndUnstartedPodsBeginNoIncident(t *testing.T) {
	for name, f := range map[string]func(*play){
		"a pause": func(p *play) {
			p.job.Pause = true
			p.pass().pass()
			p.job.Pause = false
			p.pass()
		},
		"a debug run": func(p *play) {
			p.job.Debug = true
			p.pass().pass().runAll().pass()
			p.job.Debug = false
			p.pass().pass()
		},
		"another size": func(p *play) {
			p.job.Elastic = &Elastic{Min: 1, Max: 8}
			p.job.Roles[0].Replicas = 4
			p.pass()
			p.job.Roles[0].Replicas = 8
			p.pass()
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newIncidents(t, batch.RestartJob, 3)
			f(p)
			p.recover().want(batch.JobRunning, 0)
			if p.stat.Restarts != 0 {
				t.Errorf("%d incidents: %+v", p.stat.Restarts, p.stat.Incident)
			}
		})
	}
	t.Run("a pod that had not started", func(t *testing.T) {
		p := newTraining(t, 3, 3)
		p.job.Roles[0].Restart.All = true
		p.pass().run(0, 1).after(time.Minute).pass()
		first := p.pod(0).UID
		delete(p.pods, "job-worker-2")
		p.pass().run(2).pass().want(batch.JobRunning, 0)
		if p.pod(0).UID != first || p.stat.Restarts != 0 {
			t.Errorf("%d incidents", p.stat.Restarts)
		}
	})
}

// TestSuccessBeforeTheIncidentIsKept verifies that a success counts even if it is observed only after its pod was
// superseded.
func TestSuccessBeforeTheIncidentIsKept(t *testing.T) {
	p := newIncidents(t, batch.RestartJob, 3)
	kept := p.pod(4)
	p.exit(5, 1).pass().wantRestarting(1)
	p.pods[kept.Name] = kept // the cache does not show the deletion yet
	p.exit(4, 0).recover().want(batch.JobRunning, 1)
	if r := p.stat.Tasks[0].Replicas[4]; r.Phase != batch.ReplicaSucceeded || p.pods[kept.Name] != kept {
		t.Errorf("%+v", r)
	}
}

// TestPermanentFailuresAroundAnIncident verifies that a replica whose exit code permits no restart restarts
// nevertheless if it fails at the same time as the replica that begins the incident, and stays failed if it failed
// earlier.
func TestPermanentFailuresAroundAnIncident(t *testing.T) {
	for name, earlier := range map[string]bool{"before": true, "after": false} {
		t.Run(name, func(t *testing.T) {
			p := newIncidents(t, batch.RestartJob, 3)
			p.job.Roles[0].Restart.FailCodes = []CodeRange{{1, 1}}
			if earlier {
				p.exit(6, 1).after(2 * time.Second)
			}
			p.exit(5, 137)
			if !earlier {
				p.exit(6, 1)
			}
			p.recover().want(batch.JobRunning, 1)
			if got := p.stat.Tasks[0].Replicas[6].Phase == batch.ReplicaFailed; got != earlier {
				t.Errorf("failed permanently: %t", got)
			}
		})
	}
}

func TestCollectiveJobFailsWithAnyReplica(t *testing.T) {
	lost := func() *play {
		p := newIncidents(t, batch.RestartReplica, 3)
		p.job.Collective = true
		p.job.Roles[0].Restart.FailCodes = []CodeRange{{2, 2}}
		return p.exit(6, 2).pass().want(batch.JobRunning, 0).wantReason(batch.JobReplicaFailure, batch.ReasonReplicaFailed)
	}
	p := lost()
	if p.plan.RequeueAfter > time.Minute || p.plan.RequeueAfter < 59*time.Second {
		t.Errorf("next pass after %s", p.plan.RequeueAfter)
	}
	p.after(59*time.Second).pass().want(batch.JobRunning, 0)
	p.after(time.Second).pass().want(batch.JobFailed, 0).wantReason(batch.JobFailedCondition, batch.ReasonReplicaFailed)
	lost().after(50*time.Second).exit(0, 0).pass().want(batch.JobSucceeded, 0)
	lost().after(50*time.Second).exit(0, 2).pass().want(batch.JobFailed, 0).wantReason(batch.JobFailedCondition, batch.ReasonFailureRule)

	p = lost()
	p.job.Pause = true
	p.after(time.Hour).pass().pass().want(batch.JobPaused, 0)
}

func TestIncidentsBackOff(t *testing.T) {
	p := newIncidents(t, batch.RestartJob, 9)
	p.exit(1, 1).pass().wantRestarting(1).pass().runAll().pass().want(batch.JobRunning, 1)
	for i, wait := range []time.Duration{10 * time.Second, 20 * time.Second} {
		p.after(time.Second).exit(i+2, 1).after(wait - time.Second).pass().wantRestarting(int32(i + 1))
		p.after(time.Second).pass().wantRestarting(int32(i+2)).pass().runAll().pass().want(batch.JobRunning, int32(i+2))
	}
	p.after(10*time.Minute).exit(7, 1).pass().wantRestarting(4)
}

// TestReplicaLimitCountsIncidentsItBegan verifies that in scope Job the limit of a GenericJob counts the incidents that
// a replica began.
func TestReplicaLimitCountsIncidentsItBegan(t *testing.T) {
	p := newPlay(t, 3, 1)
	p.job.Roles[0].Restart.All = true
	p.job.Success = []Rule{{Text: `{"worker":[0]}`, Members: []Member{{}}}}
	p.pass().runAll().after(time.Minute).pass()
	p.exit(1, 1).recover().want(batch.JobRunning, 1)
	p.exit(2, 1).recover().want(batch.JobRunning, 2)
	p.exit(1, 1).recover().want(batch.JobRunning, 2) // the replica has failed for good
	if r := p.stat.Tasks[0].Replicas[1]; r.Phase != batch.ReplicaFailed || r.RestartCount != 1 {
		t.Fatalf("%+v", r)
	}
	p.exit(0, 1).recover().want(batch.JobRunning, 3)
	if r := p.stat.Tasks[0].Replicas; r[1].Phase != batch.ReplicaFailed || r[2].RestartCount != 1 || r[2].Attempt != 3 {
		t.Errorf("%+v", r)
	}
	p.exit(0, 1).after(time.Hour).pass().want(batch.JobFailed, 3).wantReason(batch.JobFailedCondition, batch.ReasonSuccessRulesUnsatisfiable)
}

// TestIncidentsOutliveTheirStatus verifies that a lost status regains its counts from the pods, and that a status that
// omits replicas loses no counts.
func TestIncidentsOutliveTheirStatus(t *testing.T) {
	bothScopes(t, func(t *testing.T, scope batch.RestartScope) {
		p := newIncidents(t, scope, 3)
		p.cfg.MaxListed = 2
		p.exit(1, 1).exit(2, 1).recover().exit(1, 1).exit(3, 1).recover().want(batch.JobRunning, 2)
		p.after(time.Minute).pass()
		p.stat = nil
		p.pass().want(batch.JobRunning, 2)
		if p.stat.Restarts != 2 {
			t.Errorf("%d incidents, want 2", p.stat.Restarts)
		}
	})
}

func TestIncidentsAreReported(t *testing.T) {
	p := newIncidents(t, batch.RestartJob, 3)
	p.exit(5, 137).pod(5).Status.ContainerStatuses[0].State.Terminated.Reason = "OOMKilled"
	p.pod(5).Status.ContainerStatuses[0].State.Terminated.Message = "epoch 3\nno memory left\n\n"
	p.pass()
	const what = "Retry 1 of 3: job-worker-5 failed with exit code 137 (OOMKilled): no memory left"
	if got := p.plan.Events[0].Message; got != what+". 8 replicas restart together." {
		t.Errorf("event %q", got)
	}
	if got := condition(p.stat, batch.JobRunningCondition).Message; got != "0 of 8 replicas run. "+what+"." {
		t.Errorf("condition %q", got)
	}
	p.after(7 * time.Second).pass().runAll().pass()
	if got := condition(p.stat, batch.JobRunningCondition).Message; got != "8 replicas run. "+what+"; all ran again after 7s." {
		t.Errorf("condition %q", got)
	}
	if got := p.plan.Events[0].Message; got != "All replicas run again 7s after job-worker-5 failed with exit code 137 (OOMKilled)." {
		t.Errorf("event %q", got)
	}
}

// TestRecoveryIsReportedOnce verifies that the event of a recovery waits for the status that records it, which may be
// coalesced with others.
func TestRecoveryIsReportedOnce(t *testing.T) {
	p := newIncidents(t, batch.RestartJob, 3)
	p.exit(5, 1).pass().pass().runAll().after(time.Second).exit(5, 1)
	p.eventReasons, p.seen.LastWrite = nil, p.now
	if p.pass(); p.plan.Status != nil {
		t.Fatal("the status was written at once")
	}
	p.after(10 * time.Second).pass()
	if reasons := strings.Join(p.eventReasons, " "); strings.Count(reasons, "Recovered") != 1 {
		t.Errorf("events %s", reasons)
	}
}

// TestConsequenceRestartsWithAll verifies that a replica which restarts only because all do is not charged, and waits
// for the others, although its own role restarts replicas alone and its limit is used up.
func TestConsequenceRestartsWithAll(t *testing.T) {
	p := newPlay(t, 2, 3)
	p.cfg.LogReadTime = 5 * time.Second
	none := int32(0)
	first := p.job.Roles[0]
	first.Type, first.Replicas, first.Restart.All = "first", 1, true
	p.job.Roles[0].Restart = Restart{OnFailure: true, Limit: &none}
	p.job.Roles = append(p.job.Roles, first)
	p.job.Success = []Rule{{Text: "{}", Members: []Member{{Role: 0, Rank: 1}}}}
	lead := func(state corev1.ContainerState, phase corev1.PodPhase) {
		pod := p.pods["job-first-0"]
		pod.Status = corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{Name: "main", State: state}}}
	}
	p.pass().run(0, 1)
	lead(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(p.now)}}, corev1.PodRunning)
	p.after(2*time.Second).pass().want(batch.JobRunning, 0)
	ended := metav1.NewTime(p.now)
	p.after(2*time.Second).exit(0, 1).pass().after(6 * time.Second).pass()
	lead(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, StartedAt: ended, FinishedAt: ended}}, corev1.PodFailed)
	p.pass() // the failure that came first is observed last, and its log may not have been read yet
	if r := p.stat.Tasks[0].Replicas[0]; r.RestartCount > 0 || r.Attempt > 0 {
		t.Errorf("the consequence restarts alone: %+v", r)
	}
	p.after(6 * time.Second).pass()
	if p.stat.Restarts != 1 || p.stat.Tasks[0].RestartCount != 0 || p.stat.Tasks[1].RestartCount != 1 || p.stat.Tasks[0].Replicas[0].Attempt != 1 {
		t.Errorf("%d incidents; %+v", p.stat.Restarts, p.stat.Tasks)
	}
}
