package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/test/kit/await"
	"tensorstack.dev/batch/test/kit/gate"
	"tensorstack.dev/batch/test/kit/jobs"
)

var (
	kills    = flag.Int("kills", 8, "how often TestJobsEndTheSameWhenTheOperatorIsKilled kills the operator; internal/sim does so at any call")
	killSeed = flag.Uint64("seed", 0, "seed of the times of the kills; 0 chooses a new one")
)

// TestJobsEndTheSameWhenTheOperatorIsKilled kills the operator repeatedly while jobs start, restart, pause, resume and
// are cleaned up. It verifies that each job ends with the same result and counts as in a round without kills, according
// to the status, the remaining pods and the records of the processes. (Package history checks that no status
// contradicts itself.)
func TestJobsEndTheSameWhenTheOperatorIsKilled(t *testing.T) {
	requireFaults(t)
	s := lend(t, fragile)
	s.playRound(0)
	want := s.outcome(0)
	t.Logf("without kills:\n%s", want)

	k := newKiller(s, local.Operator)
	round := 0
	for k.count() < *kills && !t.Failed() {
		round++
		s.playRound(round)
		if got := s.outcome(round); got != want {
			t.Errorf("round %d ended differently:\n%swant\n%s", round, got, want)
		}
	}
	k.stop()
	t.Log(k.summary(round))
}

// nth is the beginning of a script that depends on the number of starts of its replica: it sets $n to that number,
// including this start.
const nth = `echo started >> /gate/$HOSTNAME.starts; n=$(wc -l < /gate/$HOSTNAME.starts); `

// playRound runs jobs that restart, fail, pause and are cleaned up, and training jobs, in parallel until all have
// ended.
func (s *space) playRound(round int) {
	s.Helper()
	name := func(sort string) string { return fmt.Sprintf("%s-%d", sort, round) }
	restarts := s.newJob(name("restarts"), jobs.Restarting(role("worker", 3, nth+`[ $n -gt 2 ]`), batch.RestartOnFailure, 2))
	s.Create(restarts)

	fails := s.newJob(name("fails"), jobs.Restarting(role("worker", 1, nth+"exit 3"), batch.RestartOnFailure, 1), role("other", 1, gate.Idle))
	fails.Spec.FailureRules = []batch.FinishRule{{"worker": {}}}
	fails.Spec.CleanUpPolicy = batch.CleanUpUnfinished
	s.Create(fails)

	pauses := s.newJob(name("pauses"), role("worker", 2, nth+`[ $n -gt 1 ] || exec sleep 1000000`))
	s.Create(pauses)

	cleans := s.newJob(name("cleans"), role("chief", 1, nth+"exit 0"), role("worker", 2, gate.Idle))
	cleans.Spec.SuccessRules = []batch.FinishRule{{"chief": {}}}
	cleans.Spec.CleanUpPolicy = batch.CleanUpAll
	cleans.Spec.Service = &batch.ServiceOption{Ports: []corev1.ServicePort{{Port: 80}}}
	s.Create(cleans)

	trains := s.startTraining(round)

	for rank := range 2 {
		s.awaitStarts(fmt.Sprintf("%s-worker-%d", pauses.Name, rank), 1)
	}
	s.setPause(pauses.Name, true)
	s.pods(pauses.Name, "none", func(p []*corev1.Pod) bool { return len(p) == 0 })
	s.setPause(pauses.Name, false)

	s.awaitPhase(restarts.Name, batch.JobSucceeded)
	s.awaitPhase(fails.Name, batch.JobFailed)
	s.awaitPhase(pauses.Name, batch.JobSucceeded)
	s.awaitPhase(cleans.Name, batch.JobSucceeded)
	s.pods(fails.Name, "the one that failed", func(p []*corev1.Pod) bool { return podNames(p) == fails.Name+"-worker-0 " })
	s.pods(cleans.Name, "none", func(p []*corev1.Pod) bool { return len(p) == 0 })
	trains.finish(s)
}

// outcome describes the results of the jobs of a round, without the round's number in their names.
func (s *space) outcome(round int) string {
	s.Helper()
	var b strings.Builder
	all, err := s.Jobs(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	for _, j := range all {
		sort, found := strings.CutSuffix(j.GetName(), fmt.Sprintf("-%d", round))
		if !found {
			continue
		}
		now := jobs.StatusOf(j)
		end := jobs.Condition(j, batch.JobCompleted)
		if now.Phase == batch.JobFailed {
			end = jobs.Condition(j, batch.JobFailedCondition)
		}
		// The outcome lacks the number of incidents, because this number depends on which restarts coincide.
		fmt.Fprintf(&b, "%s: %s for %s\n", sort, now.Phase, end.Reason)
		for i := range now.Tasks {
			for _, r := range now.Tasks[i].Replicas {
				short := strings.TrimPrefix(r.Name, j.GetName())
				fmt.Fprintf(&b, "  %s: %d restarts", short, r.RestartCount)
				// The end of a job stops the other replicas at a random point.
				if r.Phase == batch.ReplicaSucceeded || r.Phase == batch.ReplicaFailed {
					fmt.Fprintf(&b, ", %s, started %d times", r.Phase, s.starts(r.Name))
				}
				b.WriteByte('\n')
			}
		}
	}
	return b.String()
}

// killer kills one component at a time, at random times, each time after all components have become ready.
type killer struct {
	s       *space
	victims []string
	quit    chan struct{}
	once    sync.Once
	done    sync.WaitGroup
	seed    uint64

	mu    sync.Mutex
	times []time.Duration // from each kill until all components are ready again
}

func newKiller(s *space, victims ...string) *killer {
	k := &killer{s: s, victims: victims, quit: make(chan struct{}), seed: *killSeed}
	if k.seed == 0 {
		k.seed = rand.Uint64()
	}
	s.Logf("seed %d", k.seed)
	k.done.Go(k.run)
	s.Cleanup(k.stop)
	return k
}

// maxLife is the longest time from the moment at which all components are ready until the next kill.
const maxLife = 600 * time.Millisecond

func (k *killer) run() {
	rng := rand.New(rand.NewPCG(k.seed, 0))
	for {
		select {
		case <-k.quit:
			return
		case <-time.After(time.Duration(rng.Int64N(int64(maxLife)))):
		}
		began := time.Now()
		if err := k.killOnce(k.victims[rng.IntN(len(k.victims))]); err != nil {
			k.s.Error(err)
			return
		}
		k.mu.Lock()
		k.times = append(k.times, time.Since(began))
		k.mu.Unlock()
	}
}

func (k *killer) killOnce(victim string) error {
	if err := k.s.Env.Kill(victim); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), await.Patience)
	defer cancel()
	return k.s.Env.AwaitReady(ctx)
}

func (k *killer) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.times)
}

func (k *killer) stop() {
	k.once.Do(func() { close(k.quit) })
	k.done.Wait()
}

func (k *killer) summary(rounds int) string {
	if len(k.times) == 0 {
		return fmt.Sprintf("no kill was completed in %d rounds", rounds)
	}
	slices.Sort(k.times)
	return fmt.Sprintf("%d kills in %d rounds; what was killed answered again after %s at best, %s in the middle, %s at worst",
		len(k.times), rounds, k.times[0].Round(time.Millisecond), k.times[len(k.times)/2].Round(time.Millisecond), k.times[len(k.times)-1].Round(time.Millisecond))
}
