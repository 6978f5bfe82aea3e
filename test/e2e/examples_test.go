package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/testing/require"
	"tensorstack.dev/batch/test/kit/await"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/namespace"
)

const examples = "../../examples"

// readExample reads the job of an example from its file.
func (s *space) readExample(name string, j client.Object) {
	s.Helper()
	data, err := os.ReadFile(filepath.Join(examples, name, "job.yaml"))
	if err != nil {
		s.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, j); err != nil {
		s.Fatal(err)
	}
	if j.GetName() != name {
		s.Errorf("the job of examples/%s is named %s", name, j.GetName())
	}
}

// example creates the GenericJob of an example.
func (s *space) example(name string) *batch.GenericJob {
	s.Helper()
	j := &batch.GenericJob{}
	s.readExample(name, j)
	s.Create(j)
	return j
}

// trainingExamples holds the examples that the training tests run (make e2e-torch).
var trainingExamples = map[string]bool{"ddp": true, "torchrun": true, "elastic": true, "resume": true}

// checkLog verifies that the whole log of a replica's main container matches a regular expression.
func (s *space) checkLog(pod, want string) {
	s.Helper()
	if got := s.log(pod, "main"); !regexp.MustCompile("^(?:" + want + ")$").MatchString(got) {
		s.Errorf("%s writes %q, want %q", pod, got, want)
	}
}

// helloTime is the longest accepted time from the submission of the first example to its end.
const helloTime = 5 * time.Second

// TestExampleHelloEndsWithinFiveSeconds verifies the time that a new user waits for the first example. It runs alone,
// before the parallel tests, because it measures time. One of three runs must meet the limit, because the machine may
// be busy.
func TestExampleHelloEndsWithinFiveSeconds(t *testing.T) {
	requireCluster(t)
	c := shared.Get(t)
	var took time.Duration
	for range await.TimedRuns {
		s := newSpaceOn(t, c)
		began := time.Now()
		s.example("hello")
		s.awaitPhase("hello", batch.JobSucceeded)
		took = time.Since(began)
		for rank := range 3 {
			s.checkLog(fmt.Sprintf("hello-worker-%d", rank), fmt.Sprintf("Hello from replica %d of 3.\n", rank))
		}
		t.Logf("from the submission of examples/hello to its end: %s", took.Round(time.Millisecond))
		if took <= helloTime {
			return
		}
	}
	await.Overdue(t, fmt.Sprintf("examples/hello took %s, want at most %s", took, helloTime))
}

// examplesWithoutTorch holds the tests of all examples that need no PyTorch, except hello. The caller of a test creates
// the job of the example first, unless createdByTest contains the example.
var (
	examplesWithoutTorch = map[string]func(*space){
		"parameter-server": exampleParameterServer,
		"ring":             exampleRing,
		"failure-rule":     exampleFailureRule,
		"restart":          exampleRestart,
		"debug":            exampleDebug,
		"pause":            examplePause,
		"clean-up":         exampleCleanUp,
		"gang":             exampleGang,

		"tensorflow-cluster": exampleTensorFlowCluster,
		"tensorboard":        exampleTensorBoard,
	}
	createdByTest = map[string]bool{"tensorflow-cluster": true, "tensorboard": true}
)

// TestExamplesDoWhatTheyDescribe verifies that the examples in examplesWithoutTorch end as their comments describe, and
// that every example has a test.
func TestExamplesDoWhatTheyDescribe(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir(examples)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && e.Name() != "hello" && examplesWithoutTorch[e.Name()] == nil && !trainingExamples[e.Name()] {
			t.Errorf("examples/%s is not tested", e.Name())
		}
	}
	for name, run := range examplesWithoutTorch {
		t.Run(name, func(t *testing.T) {
			s := newSpace(t)
			if !createdByTest[name] {
				s.example(name)
			}
			run(s)
		})
	}
}

// exampleTensorFlowCluster verifies that every replica of the cluster reaches every other replica at its address in
// TF_CONFIG.
func exampleTensorFlowCluster(s *space) {
	if _, err := exec.LookPath("python3"); err != nil {
		require.Missing(s.T, "python3")
	}
	j := &batch.TensorFlowTrainingJob{}
	s.readExample("tensorflow-cluster", j)
	s.Create(j)
	awaitPhase(s, j, batch.JobSucceeded)
	all := []string{"chief 0", "ps 0", "ps 1", "worker 0", "worker 1"}
	for i, name := range all {
		others := strings.Join(slices.Delete(slices.Clone(all), i, i+1), ", ")
		pod := "tensorflow-cluster-" + strings.ReplaceAll(name, " ", "-")
		s.awaitLog(pod, "tensorflow", name+" reaches "+others+"\n")
		s.awaitLog(pod, "tensorflow", name+" is reached by "+others+"\n")
	}
	s.awaitLog("tensorflow-cluster-evaluator-0", "tensorflow", "evaluator 0 is not in the cluster of chief, ps, worker\n")
}

func exampleParameterServer(s *space) {
	j := s.awaitPhase("parameter-server", batch.JobSucceeded)
	if c := jobs.Condition(j, batch.JobCompleted); c.Reason != batch.ReasonSuccessRule {
		s.Errorf("condition Completed: %+v", c)
	}
	s.pods("parameter-server", "the workers", func(p []*corev1.Pod) bool {
		return podNames(p) == "parameter-server-worker-0 parameter-server-worker-1 parameter-server-worker-2 "
	})
	const servers = "servers parameter-server-ps-0:2222,parameter-server-ps-1:2222\n"
	s.checkLog("parameter-server-worker-1", "Worker 1, step 1, "+servers+"Worker 1, step 2, "+servers+"Worker 1, step 3, "+servers)
}

func exampleRing(s *space) {
	s.awaitPhase("ring", batch.JobSucceeded)
	for rank, found := range []int{5133, 4459, 4256, 4136} {
		s.checkLog(fmt.Sprintf("ring-worker-%d", rank), fmt.Sprintf("rank %d found %d of the 17984 primes below 200000\n", rank, found))
	}
}

func exampleFailureRule(s *space) {
	j := s.awaitPhase("failure-rule", batch.JobFailed)
	if c := jobs.Condition(j, batch.JobFailedCondition); c.Reason != batch.ReasonFailureRule {
		s.Errorf("condition Failed: %+v", c)
	}
	// On a slow machine, rank 2 may still be running when the job fails.
	known := jobs.Replica(j, "failure-rule-worker-2").Phase == batch.ReplicaFailed
	s.pods("failure-rule", "those that ended", func(p []*corev1.Pod) bool {
		names := podNames(p)
		return names == "failure-rule-worker-0 failure-rule-worker-2 " || !known && names == "failure-rule-worker-0 "
	})
	s.checkLog("failure-rule-worker-0", "Rank 0 gives up.\n")
}

func exampleRestart(s *space) {
	j := s.awaitPhase("restart", batch.JobSucceeded)
	if jobs.Replica(j, "restart-worker-0").RestartCount != 0 || jobs.Replica(j, "restart-worker-1").RestartCount != 1 {
		s.Errorf("tasks: %+v", j.Status.Tasks)
	}
	s.checkLog("restart-worker-1", "Rank 1, attempt 1\n")
}

func exampleDebug(s *space) {
	s.awaitPhase("debug", batch.JobRunning)
	s.awaitLog("debug-worker-1", "main", "Look around.\n")
	if got := s.exec(s.Namespace, "debug-worker-1", "main", "echo I am inside."); got != "I am inside." {
		s.Errorf("inside: %q", got)
	}
	s.setDebug("debug", false)
	s.awaitPhase("debug", batch.JobSucceeded)
	s.checkLog("debug-worker-1", "Rank 1 runs for real.\n")
}

func examplePause(s *space) {
	s.awaitPhase("pause", batch.JobRunning)
	// The example installs its signal handler before it prints this.
	s.Await("both workers train", func() error {
		if a, b := s.log("pause-worker-0", "main"), s.log("pause-worker-1", "main"); !strings.Contains(a, "trains") || b == "" {
			return fmt.Errorf("they have written %q and %q", a, b)
		}
		return nil
	})
	old := s.podNow("pause-worker-0")
	s.setPause("pause", true)
	s.awaitPhase("pause", batch.JobPaused)
	s.pods("pause", "none", func(p []*corev1.Pod) bool { return len(p) == 0 })
	for _, p := range s.history.Attempts("pause-worker-0") {
		if p.UID == old.UID && p.Status.Phase == corev1.PodFailed {
			s.Errorf("the process did not end on SIGTERM: %+v", p.Status.ContainerStatuses)
		}
	}
	s.setPause("pause", false)
	s.awaitPhase("pause", batch.JobSucceeded)
	s.checkLog("pause-worker-0", "Rank 0 continues and ends.\n")
}

func exampleCleanUp(s *space) {
	s.awaitPhase("clean-up", batch.JobSucceeded)
	s.pods("clean-up", "none", func(p []*corev1.Pod) bool { return len(p) == 0 })
	s.edit("clean-up", func(j *batch.GenericJob) { *j.Spec.TTLSecondsAfterFinished = 1 })
	namespace.AwaitList(s.Test, "the job no longer exists", &batch.GenericJobList{}, func(j []*batch.GenericJob) bool { return len(j) == 0 })
}
