package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/test/kit/gate"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/namespace"
)

// leaving is gate.Obey with a handler of SIGTERM that records the signal at the gate and exits with an error, as
// training programs do. A child process waits for the order, because a shell does not handle signals while it reads.
const leaving = `trap 'echo left >> /gate/$HOSTNAME.left; exit 7' TERM
	echo started >> /gate/$HOSTNAME.starts
	cat /gate/$HOSTNAME > /tmp/code & wait $!; exit $(cat /tmp/code)`

// deaf is gate.Obey with SIGTERM ignored.
const deaf = `trap '' TERM; ` + gate.Obey

// downGrace is the time that pods have to terminate when their cluster stops. Pods that ignore SIGTERM take all of it.
const downGrace = 20 * time.Second

// TestJobsContinueAfterDownAndUp verifies that a cluster that stops terminates its pods without charging them. When it
// starts again, unfinished jobs continue with new pods, and finished jobs remain finished.
func TestJobsContinueAfterDownAndUp(t *testing.T) {
	w := newStopped(t)
	if err := w.Env.Down(downGrace); err != nil {
		t.Fatal(err)
	}
	for _, name := range w.leavers() {
		if got := w.written(name + ".left"); got != "left\n" {
			t.Errorf("%s recorded %q when the cluster stopped", name, got)
		}
	}
	w.goOn()
}

// TestJobsContinueAfterMachineProcessIsKilled verifies that the pods that were running when the machine process was
// killed count as lost with their node, without a charge.
func TestJobsContinueAfterMachineProcessIsKilled(t *testing.T) {
	w := newStopped(t)
	if err := w.Env.KillMachine(); err != nil {
		t.Fatal(err)
	}
	w.goOn()
	for _, name := range w.leavers() {
		if got := w.written(name + ".left"); got != "" {
			t.Errorf("%s recorded %q when the machine process was killed", name, got)
		}
	}
}

// stopped holds jobs of all kinds, none of which allows a restart, on a cluster that is about to stop. Field jobs lacks
// the jobs that have succeeded, wholly or in part, and the paused job.
type stopped struct {
	*space
	jobs  []client.Object
	board map[string]string // the names of the TensorBoard's pods, by UID
	ended map[string]string // the UIDs of pods that have succeeded, by name
}

func newStopped(t *testing.T) *stopped {
	t.Helper()
	requireStandIn(t)
	w := &stopped{space: lend(t, fragile)}
	patient := role("w", 1, deaf)
	patient.Template.Spec.TerminationGracePeriodSeconds = new(int64(3600))
	elastic := w.newElastic("elastic", 1, 3, 2, role("node", 2, leaving))
	w.jobs = []client.Object{
		w.newJob("generic", role("w", 2, leaving)),
		w.newJob("never", jobs.Restarting(role("w", 1, leaving), batch.RestartNever, -1)),
		w.newJob("deaf", role("w", 1, deaf)),
		w.newJob("patient", patient),
		limited(w.newPyTorch("torch", role("master", 1, leaving), role("worker", 1, leaving)), 0),
		limited(w.newTensorFlow("tensor", under(batch.TrainingRestartExitCode, role("chief", 1, leaving)),
			under(batch.TrainingRestartExitCode, role("worker", 1, deaf))), 0),
		limited(elastic, 0),
		w.gang("gang", w.queue("q", "100m"), requesting(role("w", 2, leaving), "40m")),
	}
	for _, j := range w.jobs {
		w.Create(j)
	}
	w.Create(w.newJob("half", role("w", 2, gate.Obey)))
	w.Create(w.newJob("over", role("w", 1, gate.Obey)))
	w.Create(w.newJob("paused", role("w", 1, gate.Obey)))
	w.setPause("paused", true)
	w.claim("logs")
	w.Create(&tensorboard.TensorBoard{ObjectMeta: metav1.ObjectMeta{Name: "board"}, Spec: tensorboard.TensorBoardSpec{
		Image: "tensorboard", TrainingLogFilesets: []string{"t9k://pvc/logs/run"}}})

	w.orders("half-w-0", 0)
	w.awaitStarts("half-w-1", 1)
	w.awaitJob("half", "rank 0 has succeeded", func(j *batch.GenericJob) bool { return j.Status.Aggregate.Succeeded == 1 })
	w.orders("over-w-0", 0)
	w.awaitPhase("over", batch.JobSucceeded)
	w.awaitPhase("paused", batch.JobPaused)
	for _, j := range w.jobs {
		awaitPhase(w.space, j, batch.JobRunning)
		for _, r := range w.replicas(j) {
			w.awaitStarts(r, 1)
		}
	}
	w.awaitBoardReady("board")
	w.board = w.boardPods()
	w.ended = map[string]string{"half-w-0": string(w.podNow("half-w-0").UID), "over-w-0": string(w.podNow("over-w-0").UID)}
	return w
}

// replicas returns the names of a job's replicas.
func (w *stopped) replicas(j client.Object) (names []string) {
	w.Helper()
	for name := range w.uidsOf(j) {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// leavers returns the names of the replicas that handle SIGTERM.
func (w *stopped) leavers() []string {
	return []string{"generic-w-0", "generic-w-1", "never-w-0", "torch-master-0", "torch-worker-0", "tensor-chief-0",
		"elastic-node-0", "elastic-node-1", "gang-w-0", "gang-w-1"}
}

func (w *stopped) boardPods() map[string]string {
	w.Helper()
	pods := &corev1.PodList{}
	if err := w.Client.List(w.Context(), pods, client.InNamespace(w.Namespace)); err != nil {
		w.Fatal(err)
	}
	found := map[string]string{}
	for i := range pods.Items {
		if p := &pods.Items[i]; strings.HasPrefix(p.Name, "board") {
			found[string(p.UID)] = p.Name
		}
	}
	return found
}

// goOn starts the cluster again and verifies how the jobs continue.
func (w *stopped) goOn() {
	w.Helper()
	if err := w.Env.Up(); err != nil {
		w.Fatal(err)
	}
	for _, j := range w.jobs {
		for _, r := range w.replicas(j) {
			w.awaitStarts(r, 2)
		}
		awaitPhase(w.space, j, batch.JobRunning)
	}
	namespace.AwaitList(w.Test, "a TensorBoard that runs again", &corev1.PodList{}, func(pods []*corev1.Pod) bool {
		return slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
			return strings.HasPrefix(p.Name, "board") && w.board[string(p.UID)] == "" && p.Status.Phase == corev1.PodRunning
		})
	})
	w.awaitBoardReady("board")
	w.awaitStarts("half-w-1", 2)
	w.order("half-w-1", 0)
	w.awaitPhase("half", batch.JobSucceeded)
	for _, j := range w.jobs {
		restarts := map[string]int{}
		for _, r := range w.replicas(j) {
			w.order(r, 0)
			restarts[r] = 0
		}
		w.checkUncharged(awaitPhase(w.space, j, batch.JobSucceeded), restarts)
	}
	for name, uid := range w.ended {
		if p := w.podNow(name); string(p.UID) != uid || w.starts(name) != 1 {
			w.Errorf("%s, which had succeeded, started %d times", name, w.starts(name))
		}
		if got, want := w.log(name, "main"), "ending with 0\n"; got != want {
			w.Errorf("%s has written %q, want %q", name, got, want)
		}
	}
	w.awaitPhase("over", batch.JobSucceeded)
	w.awaitPhase("paused", batch.JobPaused)
	w.setPause("paused", false)
	w.finish("paused", "w", 1)
}

// checkUncharged verifies that each replica started twice and that no restart was counted.
func (w *stopped) checkUncharged(j client.Object, replicas map[string]int) {
	w.Helper()
	for name := range replicas {
		if r := jobs.Replica(j, name); r.RestartCount != 0 {
			w.Errorf("%d restarts of %s were charged", r.RestartCount, name)
		}
		if got := w.starts(name); got != 2 {
			w.Errorf("%s has started %d times, want 2", name, got)
		}
	}
	if n := jobs.StatusOf(j).BackoffCount; n != 0 {
		w.Errorf("%s counts %d restarts", fmt.Sprintf("%T %s", j, j.GetName()), n)
	}
}
