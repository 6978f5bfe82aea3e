package integration

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
	"tensorstack.dev/batch/test/kit/program"
)

// TestOperatorLogsEachDecisionOnce runs jobs through the events that users ask about later, and verifies that the
// operator's log has one line for each decision, with the job, the reason and the affected replicas.
func TestOperatorLogsEachDecisionOnce(t *testing.T) {
	w := newWorld(t)
	address := freeAddress(t)
	w.installWebhook(address)
	settings := operatorSettings(t, "webhook: {bindAddress: '"+address+"'}")
	o, err := program.Start("/proc/self/exe", []string{"--kubeconfig=" + w.Env.Kubeconfig, "--namespace=t9k-system", "--config=" + settings, "--v=2"}, []string{asOperator + "=1"})
	w.Must(err)
	o.EndWith(t)
	w.awaitWebhook()

	want := map[string][]string{
		"restarts": w.restartsAndEvictions("restarts"),
		"fails":    w.failure("fails"),
		"together": w.restartTogether("together"),
		"pauses":   w.pauseAndResume("pauses"),
	}
	for job, lines := range want {
		w.Await("the log has all decisions on job "+job, func() error {
			if diff := cmp.Diff(lines, w.decisions(o.Log.String(), job)); diff != "" {
				return fmt.Errorf("(-want +logged)\n%s", diff)
			}
			return nil
		})
	}
	if n := strings.Count(o.Log.String(), `"Renewed the webhook's certificate"`); n != 1 {
		t.Errorf("%d lines say that the certificate was renewed", n)
	}
}

var decision = regexp.MustCompile(`"Job event" .*\bjob="([^"]+)" reason="(\w+)"(?: replicas=\[([^\]]*)\])? message="`)

// decisions lists the decisions on a job in a log, each as its reason and replicas. It leaves out the start, which is
// not logged for a job whose first status already shows running replicas.
func (w *world) decisions(log, job string) []string {
	var found []string
	for _, m := range decision.FindAllStringSubmatch(log, -1) {
		if m[1] == w.Namespace+"/"+job && m[2] != string(batch.EventJobStarted) {
			found = append(found, strings.TrimSpace(m[2]+" "+strings.ReplaceAll(m[3], `"`, "")))
		}
	}
	return found
}

func (w *world) restartsAndEvictions(name string) []string {
	w.Helper()
	w.Create(jobs.New(name, jobs.Restarting(jobs.Role("w", 2, kubelet.Run), batch.RestartOnFailure, 3)))
	w.awaitPhase(name, batch.JobRunning)
	w.finish(name+"-w-0", 1)
	w.awaitRunning(name, 1, 0)
	pod := name + "-w-1"
	w.Must(w.Core.PolicyV1().Evictions(w.Namespace).Evict(w.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: w.Namespace}}))
	w.awaitRunning(name, 1, 1)
	w.finish(name+"-w-0", 0)
	w.finish(pod, 0)
	w.awaitPhase(name, batch.JobSucceeded)
	return []string{"ReplicasRunning", "Incident " + name + "-w-0", "ReplicaRestarted " + name + "-w-0", "Recovered " + name + "-w-0", "ReplicasRunning", "ReplicaDisrupted " + pod, "ReplicasRunning", "SuccessRuleMet"}
}

// awaitRunning waits until the replicas of a job's only role run. attempts holds the attempt of each replica, by
// rank.
func (w *world) awaitRunning(name string, attempts ...int32) {
	w.Helper()
	w.Await(fmt.Sprintf("the replicas of job %s run in attempts %v", name, attempts), func() error {
		j := w.job(name)
		for rank, r := range j.Status.Tasks[0].Replicas {
			if r.Attempt != attempts[rank] || j.Status.Phase != batch.JobRunning || j.Status.Aggregate.Running != int32(len(attempts)) {
				return fmt.Errorf("%s: %+v", j.Status.Phase, j.Status.Tasks)
			}
		}
		return nil
	})
}

func (w *world) failure(name string) []string {
	w.Helper()
	w.Create(jobs.New(name, jobs.Role("w", 1, kubelet.Run)))
	w.awaitPhase(name, batch.JobRunning)
	w.finish(name+"-w-0", 3)
	w.awaitPhase(name, batch.JobFailed)
	return []string{"ReplicasRunning", "ReplicaFailed " + name + "-w-0", "FailureRuleMet"}
}

// restartTogether makes a job restart as a whole, and returns the expected decisions.
func (w *world) restartTogether(name string) []string {
	w.Helper()
	role := jobs.Restarting(jobs.Role("w", 2, kubelet.Run), batch.RestartOnFailure, 3)
	role.RestartPolicy.Scope = batch.RestartJob
	w.Create(jobs.New(name, role))
	w.awaitPhase(name, batch.JobRunning)
	w.finish(name+"-w-1", 1)
	w.awaitRunning(name, 1, 1)
	return []string{"ReplicasRunning", "Incident " + name + "-w-1", "ReplicaDisrupted " + name + "-w-0", "Recovered " + name + "-w-1", "ReplicasRunning"}
}

func (w *world) pauseAndResume(name string) []string {
	w.Helper()
	w.Create(jobs.New(name, jobs.Role("w", 2, kubelet.Run)))
	w.awaitPhase(name, batch.JobRunning)
	w.patch(name, `{"spec":{"runMode":{"pause":{"enabled":true}}}}`)
	w.awaitPhase(name, batch.JobPaused)
	w.patch(name, `{"spec":{"runMode":{"pause":{"enabled":false}}}}`)
	w.awaitPhase(name, batch.JobRunning)
	return []string{"ReplicasRunning", "JobPaused", "JobResumed", "ReplicasRunning"}
}

// TestSchedulerLogsEachDecisionOnce verifies that the scheduler's log says once which gangs started, which gang waits
// and why, and which gang preempted which pods.
func TestSchedulerLogsEachDecisionOnce(t *testing.T) {
	w := newWorld(t)
	w.installDefault()
	w.paperNodes("paper-0", "paper-1")
	scheduler := w.startScheduler("--v=2")
	scheduler.awaitProbes(w)
	low, high := w.paperQueue("low", 0), w.paperQueue("high", 10)
	w.gangOf("first", low, 4, "2")
	w.awaitBound("first", 4)
	w.gangOf("too-many", low, 9, "2")
	w.Await("the group reports the reason", func() error {
		return w.checkGroup("too-many", metav1.ConditionFalse, scheduling.ReasonImpossible)
	})
	w.gangOf("important", high, 4, "2")
	w.awaitBound("important", 4)

	want := map[string]*regexp.Regexp{
		"too-many waits": regexp.MustCompile(`"Wrote a group's condition" podGroup="` + w.Namespace + `/too-many" condition="GroupScheduled" status="False" reason="Impossible" message="`),
	}
	for _, group := range []string{"first", "important"} {
		want[group+" starts"] = regexp.MustCompile(`"Wrote a group's condition" podGroup="` + w.Namespace + "/" + group + `" condition="GroupScheduled" status="True"`)
	}
	for i := range 4 {
		name := fmt.Sprintf("first-%d", i)
		want[name+" is preempted"] = regexp.MustCompile(fmt.Sprintf(`"Evicted a pod" pod="%s/%s" podGroup="%[1]s/first" reason="[^"]*for group %[1]s/important"`, w.Namespace, name))
	}
	for what, line := range want {
		w.Await("the log says that "+what, func() error {
			if n := len(line.FindAllString(scheduler.Log.String(), -1)); n != 1 {
				return fmt.Errorf("%d lines match %s in\n%s", n, line, program.Tail(scheduler.Log.String()))
			}
			return nil
		})
	}
}
