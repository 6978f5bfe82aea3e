package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/test/kit/await"
	"tensorstack.dev/batch/test/kit/gate"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/namespace"
)

// These are the limits that TestTimeLimitsAreKeptWithinASecond measures. They are long enough for a killed operator to
// restart before the first of them is reached.
const (
	deadline     = 6 * time.Second
	timeToLive   = 6 * time.Second
	restartDelay = 6 * time.Second
)

// timeTolerance is the largest accepted error of a time limit. Times in Kubernetes objects are whole seconds.
const timeTolerance = time.Second

// watchLag is the largest delay with which the test observes the start of an interval on a busy machine, which makes
// the interval appear shorter.
const watchLag = time.Second / 2

// TestTimeLimitsAreKeptWithinASecond verifies that deadline, back-off delay and time to live are kept within a second
// by the clock of the test, even if the operator is killed in between (TensorFlow). The test runs alone because it
// measures time. One of three runs must meet the limits, because the machine may be busy. In no run may a limit take
// effect too early.
func TestTimeLimitsAreKeptWithinASecond(t *testing.T) {
	requireCluster(t)
	c := timed.Get(t)
	for kind, disturb := range map[string]func(*space){
		"PyTorch": func(*space) {},
		"TensorFlow": func(s *space) {
			if err := (&killer{s: s}).killOnce(local.Operator); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(kind, func(t *testing.T) {
			for run := range await.TimedRuns {
				worst := newSpaceOn(t, c).timeLimits(trainingKinds[kind], disturb)
				if worst <= timeTolerance {
					return
				}
				t.Logf("run %d: the latest limit was %s late", run+1, worst)
			}
			await.Overdue(t, fmt.Sprintf("in no run were all limits kept to within %s", timeTolerance))
		})
	}
}

// timeLimits starts three jobs that reach the three limits at about the same time, and returns by how much the latest
// limit was late; 0 if none was. It fails the test if a limit takes effect too early.
func (s *space) timeLimits(build func(*space, string, ...batch.ReplicaSpec) client.Object, disturb func(*space)) time.Duration {
	s.Helper()
	brief := build(s, "brief", role("worker", 1, "exit 0"))
	runPolicyOf(brief).TTLSecondsAfterFinished = new(int32(timeToLive.Seconds()))
	s.Create(brief)
	again := build(s, "again", role("worker", 1, `date +%s.%N > /gate/$HOSTNAME.end; echo started >> /gate/$HOSTNAME.starts; exit 1`))
	s.Create(limited(again, 2))
	late := build(s, "late", role("worker", 2, gate.Idle))
	runPolicyOf(late).ActiveDeadlineSeconds = new(int32(deadline.Seconds()))
	s.Create(late)

	s.awaitStarts("again-worker-0", 2)
	s.history.AwaitSeen("brief/" + string(batch.JobSucceeded)) // it may already be deleted
	s.history.AwaitSeen("late/pods")
	ended := s.endOf("again-worker-0")
	disturb(s)
	s.awaitStarts("again-worker-0", 3)
	awaitPhase(s, late, batch.JobFailed)
	namespace.AwaitList(s.Test, "the job brief no longer exists", jobs.ListOf(jobs.KindOf(brief)), func(all []client.Object) bool {
		for _, j := range all {
			if j.GetName() == "brief" {
				return false
			}
		}
		return true
	})
	s.history.CatchUp()

	attempts := s.history.Attempts("again-worker-0")
	worst := time.Duration(0)
	for what, lateness := range map[string]time.Duration{
		"deadline": s.history.FirstSeen("late/"+string(batch.JobFailed)).Sub(s.history.FirstSeen("late/pods")) - deadline,
		"back-off": s.history.FirstSeen(string(attempts[2].UID)).Sub(ended) - restartDelay,
		"TTL":      s.history.FirstSeen("brief/gone").Sub(s.history.FirstSeen("brief/"+string(batch.JobSucceeded))) - timeToLive,
	} {
		s.Logf("%s: %s from the truth", what, lateness.Round(time.Millisecond))
		if lateness < -timeTolerance-watchLag {
			s.Errorf("%s: %s too early", what, -lateness)
		}
		worst = max(worst, lateness)
	}
	return worst
}

// endOf returns the last time at which a process of a replica recorded its end.
func (s *space) endOf(replica string) time.Time {
	s.Helper()
	text := strings.TrimSpace(s.written(replica + ".end"))
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil {
		s.Fatal(fmt.Errorf("end of %s: %w", replica, err))
	}
	return time.Unix(0, int64(seconds*1e9))
}
