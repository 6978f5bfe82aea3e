package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/gate"
	"tensorstack.dev/batch/test/kit/jobs"
)

// newPyTorch returns a PyTorchTrainingJob with the roles and creates a pipe at the gate for each replica.
func (s *space) newPyTorch(name string, roles ...batch.ReplicaSpec) *batch.PyTorchTrainingJob {
	s.Helper()
	g := s.newJob(name, roles...)
	j := &batch.PyTorchTrainingJob{ObjectMeta: g.ObjectMeta}
	for _, r := range g.Spec.ReplicaSpecs {
		j.Spec.ReplicaSpecs = append(j.Spec.ReplicaSpecs, batch.PyTorchReplicaSpec{TrainingReplicaSpec: trainingRole(r)})
	}
	return j
}

// newTensorFlow returns a TensorFlowTrainingJob with the roles and creates a pipe at the gate for each replica.
func (s *space) newTensorFlow(name string, roles ...batch.ReplicaSpec) *batch.TensorFlowTrainingJob {
	s.Helper()
	g := s.newJob(name, roles...)
	j := &batch.TensorFlowTrainingJob{ObjectMeta: g.ObjectMeta}
	for _, r := range g.Spec.ReplicaSpecs {
		r.Template.Spec.Containers[0].Name = "tensorflow"
		j.Spec.ReplicaSpecs = append(j.Spec.ReplicaSpecs, trainingRole(r))
	}
	return j
}

func trainingRole(r batch.ReplicaSpec) batch.TrainingReplicaSpec {
	t := batch.TrainingReplicaSpec{Type: r.Type, Replicas: r.Replicas, Template: r.Template}
	if r.RestartPolicy != nil {
		t.RestartPolicy = batch.TrainingRestartPolicy(r.RestartPolicy.Policy)
	}
	return t
}

// trainingKinds holds, for each training kind, a function that returns a job.
var trainingKinds = map[string]func(s *space, name string, roles ...batch.ReplicaSpec) client.Object{
	"PyTorch": func(s *space, name string, roles ...batch.ReplicaSpec) client.Object {
		return s.newPyTorch(name, roles...)
	},
	"TensorFlow": func(s *space, name string, roles ...batch.ReplicaSpec) client.Object {
		return s.newTensorFlow(name, roles...)
	},
}

// under sets the restart policy of a role of a training job.
func under(policy batch.TrainingRestartPolicy, r batch.ReplicaSpec) batch.ReplicaSpec {
	return jobs.Restarting(r, batch.RestartPolicyType(policy), -1)
}

// limited sets the restart limit of a training job.
func limited[T client.Object](j T, limit int32) T {
	runPolicyOf(j).BackoffLimit = &limit
	return j
}

// runPolicyOf returns the run policy of a training job and creates it if it is unset.
func runPolicyOf(j client.Object) *batch.RunPolicy {
	t := jobs.TrainingOf(j)
	if t.RunPolicy == nil {
		t.RunPolicy = &batch.RunPolicy{}
	}
	return t.RunPolicy
}

// exitTable returns the table of docs/pytorch.md with the effect of each exit code: "restart", "succeeded" or "failed",
// by restart policy and exit code.
func exitTable(t *testing.T) map[batch.TrainingRestartPolicy]map[int]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/pytorch.md")
	if err != nil {
		t.Fatal(err)
	}
	var policies []string
	table := map[batch.TrainingRestartPolicy]map[int]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i], _, _ = strings.Cut(strings.TrimSpace(strings.ReplaceAll(cells[i], "`", "")), " (")
		}
		code, err := strconv.Atoi(cells[0])
		switch {
		case cells[0] == "exit code":
			policies = cells[1:]
		case err == nil && len(cells) == 1+len(policies):
			for i, p := range policies {
				policy := batch.TrainingRestartPolicy(p)
				if table[policy] == nil {
					table[policy] = map[int]string{}
				}
				table[policy][code] = cells[1+i]
			}
		}
	}
	for _, policy := range []batch.TrainingRestartPolicy{batch.TrainingRestartAlways, batch.TrainingRestartOnFailure, batch.TrainingRestartNever, batch.TrainingRestartExitCode} {
		if codes := slices.Sorted(maps.Keys(table[policy])); !slices.Equal(codes, []int{0, 1, 130, 137, 138, 139, 143, 255}) {
			t.Fatalf("docs/pytorch.md has the exit codes %v under %s", codes, policy)
		}
	}
	return table
}

const (
	exitRestart   = "restart"
	exitSucceeded = "succeeded"
)

// TestExitCodesFollowTheDocumentedTable verifies the effects of the exit codes of replicas other than the master. Each
// of them exits with one of the codes. The policy restarts some of them, and only these restarts count against
// backoffLimit. The others have succeeded or failed, and the job continues until its master finishes. All kinds share
// the policies, so this test runs each policy on one kind. TestTablesOfExitCodes in docs checks all pairs.
func TestExitCodesFollowTheDocumentedTable(t *testing.T) {
	t.Parallel()
	table := exitTable(t)
	for policy, kind := range map[batch.TrainingRestartPolicy]string{
		batch.TrainingRestartAlways: "PyTorch", batch.TrainingRestartExitCode: "PyTorch",
		batch.TrainingRestartOnFailure: "TensorFlow", batch.TrainingRestartNever: "TensorFlow",
	} {
		t.Run(kind+" under "+string(policy), func(t *testing.T) { testExitCodes(newSpace(t), kind, policy, table[policy]) })
	}
}

func testExitCodes(s *space, kind string, policy batch.TrainingRestartPolicy, outcomes map[int]string) {
	codes := slices.Sorted(maps.Keys(outcomes))
	again := int32(0)
	for _, o := range outcomes {
		if o == exitRestart {
			again++
		}
	}
	j := trainingKinds[kind](s, "job", under(policy, role("worker", int32(1+len(codes)), gate.Obey)))
	s.Create(limited(j, again))
	restarts := map[string]int{"job-worker-0": 0}
	for i, code := range codes {
		name := fmt.Sprintf("job-worker-%d", i+1)
		s.awaitStarts(name, 1)
		s.order(name, code)
	}
	anyFailed := false
	for i, code := range codes {
		name := fmt.Sprintf("job-worker-%d", i+1)
		if outcomes[code] == exitRestart {
			restarts[name] = 1
			s.awaitStarts(name, 2)
			continue
		}
		want := batch.ReplicaSucceeded
		if outcomes[code] != exitSucceeded {
			want, anyFailed = batch.ReplicaFailed, true
		}
		restarts[name] = 0
		j = awaitStatus(s, j, fmt.Sprintf("%s after exit code %d: %s", name, code, want), func(now *batch.JobStatus) bool {
			return slices.ContainsFunc(now.Tasks, func(t batch.Tasks) bool {
				return slices.ContainsFunc(t.Replicas, func(r batch.ReplicaStatus) bool { return r.Name == name && r.Phase == want })
			})
		})
	}
	if jobs.Over(j) {
		s.Errorf("the job ended before its master: %+v", jobs.StatusOf(j).Conditions)
	}
	// Replicas that fail together cost one retry, so retries may remain. The test lowers the limit to the number of
	// used retries. A success of the master then ends the job, even under the policy Always.
	j = awaitStatus(s, j, "all replicas run again", func(now *batch.JobStatus) bool { return now.Incident == nil || now.Incident.RecoveryTime != nil })
	used := jobs.StatusOf(j).BackoffCount
	change(s, j, func(j client.Object) { runPolicyOf(j).BackoffLimit = &used })
	awaitSeen(s, j)
	s.order("job-worker-0", 0)
	j = awaitPhase(s, j, batch.JobSucceeded)
	checkEnd(s.T, j, batch.ReasonSuccessRule, `{"worker":[0]}`)
	s.checkRestarts(j, restarts)
	if jobs.IsTrue(j, batch.JobReplicaFailure) != anyFailed {
		s.Errorf("condition ReplicaFailure: %+v", jobs.Condition(j, batch.JobReplicaFailure))
	}
}

// TestMasterExitCodesDecideTheJob verifies the effect of a master's exit code on its job under the policy ExitCode.
// TestTablesOfExitCodes in docs checks the other policies.
func TestMasterExitCodesDecideTheJob(t *testing.T) {
	s := newSpace(t)
	outcomes := exitTable(t)[batch.TrainingRestartExitCode]
	masters := map[int]*batch.PyTorchTrainingJob{}
	for code := range outcomes {
		masters[code] = limited(s.newPyTorch(fmt.Sprintf("code-%d", code), under(batch.TrainingRestartExitCode, role("master", 1, gate.Obey))), 1)
		s.Create(masters[code])
	}
	for code, j := range masters {
		s.order(j.Name+"-master-0", code)
	}
	for code, j := range masters {
		master := j.Name + "-master-0"
		restarts, want := 0, batch.JobFailed
		switch outcomes[code] {
		case exitRestart: // the restarted master then succeeds, although no restart remains
			restarts, want = 1, batch.JobSucceeded
			s.awaitStarts(master, 2)
			s.order(master, 0)
		case exitSucceeded:
			want = batch.JobSucceeded
		}
		j = awaitPhase(s, j, want)
		s.checkRestarts(j, map[string]int{master: restarts})
		if want == batch.JobFailed {
			checkEnd(t, j, batch.ReasonFailureRule, `{"master":[0]}`)
		}
	}
}

// TestBackoffLimitCountsAllReplicas verifies that a training job fails when a replica fails after backoffLimit, here
// the default of 3, has been used up, and that each repeated failure of one replica is an incident.
func TestBackoffLimitCountsAllReplicas(t *testing.T) {
	t.Parallel()
	for kind, build := range trainingKinds {
		t.Run(kind, func(t *testing.T) {
			s := newSpace(t)
			j := build(s, "all", role("worker", 3, gate.Obey)) // the default limit is 3
			runPolicyOf(j).CleanUpPolicy = batch.CleanUpUnfinished
			s.Create(j)
			s.awaitStarts("all-worker-1", 1)
			for i := range 3 { // one replica fails repeatedly
				awaitPhase(s, j, batch.JobRunning)
				s.order("all-worker-2", 1)
				s.awaitStarts("all-worker-2", i+2)
			}
			s.order("all-worker-2", 4)
			j = awaitPhase(s, j, batch.JobFailed)
			if c := jobs.Condition(j, batch.JobFailedCondition); c.Reason != batch.ReasonBackoffLimitExceeded {
				t.Errorf("conditions: %+v", jobs.StatusOf(j).Conditions)
			}
			s.fence()
			j = read(s, j)
			s.checkRestarts(j, map[string]int{"all-worker-0": 0, "all-worker-1": 0, "all-worker-2": 3})
			if n := jobs.StatusOf(j).Restarts; n != 3 {
				t.Errorf("%d incidents, want 3", n)
			}
		})
	}
}

// TestCollectiveCrashCostsOneRetry verifies that 8 ranks that fail together, or restart together because one has
// failed, cost one retry, and that the job continues.
func TestCollectiveCrashCostsOneRetry(t *testing.T) {
	t.Parallel()
	for _, scope := range []batch.RestartScope{batch.RestartReplica, batch.RestartJob} {
		t.Run(string(scope), func(t *testing.T) {
			s := newSpace(t)
			j := trainingKinds["PyTorch"](s, "crash", role("worker", 8, gate.Obey))
			runPolicyOf(j).RestartScope = scope
			s.Create(j)
			awaitPhase(s, j, batch.JobRunning)
			var all []string
			for i := range 8 {
				all = append(all, fmt.Sprintf("crash-worker-%d", i))
				s.awaitStarts(all[i], 1)
			}
			if scope == batch.RestartReplica {
				s.orderAll(1, all...)
			} else {
				s.order("crash-worker-5", 1) // the others restart with it
			}
			for i := range 8 {
				s.awaitStarts(fmt.Sprintf("crash-worker-%d", i), 2)
			}
			j = awaitStatus(s, j, "all replicas run again", func(now *batch.JobStatus) bool { return now.Incident != nil && now.Incident.RecoveryTime != nil })
			if now := jobs.StatusOf(j); now.BackoffCount != 1 || now.Restarts != 1 {
				t.Errorf("%d incidents, %d charged, want 1", now.Restarts, now.BackoffCount)
			}
			s.awaitEvent("crash", batch.EventIncident, "Retry 1 of 3: crash-worker-")
			s.order("crash-worker-0", 0)
			awaitPhase(s, j, batch.JobSucceeded)
		})
	}
}

// TestMasterDecidesTheJob verifies which replica is the master, and that no other replica decides the job.
func TestMasterDecidesTheJob(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind    string
		roles   []string
		master  string
		rule    string
		failing []string
	}{
		"PyTorch, rank 0 of the first role":       {"PyTorch", []string{"leader", "worker"}, "leader-0", `{"leader":[0]}`, []string{"worker-0", "worker-1", "leader-1"}},
		"TensorFlow, the chief":                   {"TensorFlow", []string{"worker", "chief", "evaluator"}, "chief-0", `{"chief":[0]}`, []string{"worker-0", "evaluator-0"}},
		"TensorFlow, without chief worker rank 0": {"TensorFlow", []string{"ps", "worker"}, "worker-0", `{"worker":[0]}`, []string{"ps-0", "worker-1"}},
	} {
		for _, code := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s, exit code %d", name, code), func(t *testing.T) {
				s := newSpace(t)
				var roles []batch.ReplicaSpec
				for _, r := range c.roles {
					n := int32(2)
					if r == "chief" || r == "evaluator" {
						n = 1
					}
					roles = append(roles, under(batch.TrainingRestartNever, role(r, n, gate.Obey)))
				}
				j := trainingKinds[c.kind](s, "job", roles...)
				runPolicyOf(j).CleanUpPolicy = batch.CleanUpAll
				s.Create(j)
				for i, other := range c.failing {
					s.order("job-"+other, i) // the first one succeeds, the others fail
				}
				awaitStatus(s, j, "the others have ended", func(now *batch.JobStatus) bool {
					return now.Aggregate.Succeeded == 1 && int(now.Aggregate.Failed) == len(c.failing)-1 && !jobs.Ended(now)
				})
				s.order("job-"+c.master, code)
				want, reason := batch.JobSucceeded, batch.ReasonSuccessRule
				if code != 0 {
					want, reason = batch.JobFailed, batch.ReasonFailureRule
				}
				j = awaitPhase(s, j, want)
				checkEnd(t, j, reason, c.rule)
				if !jobs.IsTrue(j, batch.JobReplicaFailure) {
					t.Errorf("condition ReplicaFailure: %+v", jobs.Condition(j, batch.JobReplicaFailure))
				}
				s.pods("job", "none", func(p []*corev1.Pod) bool { return len(p) == 0 })
			})
		}
	}
}

// TestDeadlineStopsRunningPods verifies that running pods are deleted when the deadline passes, even under the default
// clean-up policy, and that finished pods are kept. The deadline is set on a live job.
func TestDeadlineStopsRunningPods(t *testing.T) {
	s := newSpace(t)
	j := s.newTensorFlow("late", role("chief", 1, gate.Obey), role("worker", 2, gate.Obey))
	s.Create(j)
	s.order("late-worker-1", 0)
	awaitStatus(s, j, "one has finished, two run", func(now *batch.JobStatus) bool {
		return now.Aggregate.Succeeded == 1 && now.Aggregate.Running == 2
	})
	change(s, j, func(j *batch.TensorFlowTrainingJob) { runPolicyOf(j).ActiveDeadlineSeconds = new(int32(1)) })
	j = awaitPhase(s, j, batch.JobFailed)
	checkEnd(t, j, batch.ReasonDeadlineExceeded, "1s")
	s.pods("late", "the one that had finished", func(p []*corev1.Pod) bool { return podNames(p) == "late-worker-1 " })
	j = awaitStatus(s, j, "the status shows the deletions", func(now *batch.JobStatus) bool { return now.Aggregate.Deleted == 2 })
	if jobs.Replica(j, "late-worker-1").Phase != batch.ReplicaSucceeded || jobs.Condition(j, batch.JobReplicaFailure).Status == "True" {
		t.Errorf("%+v", j.Status)
	}
}

// standIn replaces torchrun in tests that do not need it: it starts the program after --no_python.
const standIn = `#!/bin/sh
while [ "$1" != --no_python ]; do shift; done
shift
exec "$@"
`

// newElastic returns an elastic job with the roles, in which standIn replaces torchrun. The replica counts of the roles
// have no effect. newElastic creates a pipe at the gate for each replica that a role can have.
func (s *space) newElastic(name string, least, most, expected int32, roles ...batch.ReplicaSpec) *batch.PyTorchTrainingJob {
	s.Helper()
	bin := s.File("bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "torchrun"), []byte(standIn), 0o755); err != nil {
		s.Fatal(err)
	}
	j := s.newPyTorch(name, roles...)
	j.Spec.Elastic = &batch.ElasticConfig{Enabled: new(true), MinReplicas: &least, MaxReplicas: &most, ExpectedReplicas: &expected}
	j.Spec.TorchrunConfig = &batch.TorchrunConfig{Enabled: new(true), ExtraOptions: []string{"--no_python"}}
	for i := range j.Spec.ReplicaSpecs {
		c := &j.Spec.ReplicaSpecs[i].Template.Spec.Containers[0]
		c.Command, c.Args = nil, c.Command
		path := strings.Join([]string{gate.MountPath + "/bin", os.Getenv("PATH")}, ":")
		c.Env = append(c.Env, corev1.EnvVar{Name: "PATH", Value: path})
		for rank := range most {
			s.Must(s.AddPipe(fmt.Sprintf("%s-%s-%d", name, j.Spec.ReplicaSpecs[i].Type, rank)))
		}
	}
	return j
}
