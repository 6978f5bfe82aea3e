package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
)

// TestCLIPassesNoControlSequenceOn verifies that t9k prints no control sequence that commands, annotations, statuses,
// events, manifests or arguments contain. It tries every verb, apart from a list of exceptions.
func TestCLIPassesNoControlSequenceOn(t *testing.T) {
	const evil = "evil \x1b[2J\u009b31m\x07"
	w := newWorld(t)
	job := jobs.New("job", jobs.Role("w", 2, kubelet.Run, evil))
	values, err := json.Marshal(map[string]string{evil: evil})
	w.Must(err)
	job.Labels = map[string]string{batch.LabelSweep: "swept"}
	job.Annotations = map[string]string{"note": evil, batch.AnnotationParameters: string(values)}
	w.Create(job)
	status := func(name string, phase batch.JobPhase, ended batch.JobConditionType) {
		j := w.job(name)
		j.Status.JobStatus = batch.JobStatus{Phase: phase, Tasks: []batch.Tasks{{Type: "w" + evil, Replicas: []batch.ReplicaStatus{
			{Name: name + "-w-0", Phase: batch.ReplicaFailed, Reason: evil, NodeName: evil}, {Name: name + "-w-1", Phase: batch.ReplicaPending, Reason: evil}}}},
			Aggregate: batch.Aggregate{Failed: 1, Pending: 1},
			Conditions: []batch.JobCondition{
				{Type: batch.JobRunningCondition, Status: metav1.ConditionFalse, Reason: batch.ReasonUnschedulable, Message: evil},
				{Type: batch.JobFailedCondition, Status: metav1.ConditionFalse, Reason: batch.Reason(evil), Message: evil}}}
		if ended != "" {
			j.Status.Conditions[1].Type, j.Status.Conditions[1].Status = ended, metav1.ConditionTrue
		}
		w.Must(w.Client.Status().Update(t.Context(), j))
	}
	status("job", batch.JobPending, "")
	w.Create(jobs.New("ended", jobs.Role("w", 2, kubelet.Run)))
	status("ended", batch.JobFailed, batch.JobFailedCondition)
	w.Create(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "event"}, Type: evil, Reason: evil, Message: evil,
		InvolvedObject: corev1.ObjectReference{Kind: "GenericJob", Namespace: w.Namespace, Name: "job", UID: w.job("job").UID}})
	queue := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{GenerateName: "evil-"}, Spec: scheduling.QueueSpec{ResourceShapeProfile: "none"}}
	w.Must(w.Client.Create(t.Context(), queue))
	w.deleteLater(queue)
	queue.Status.Conditions = []scheduling.QueueCondition{{Type: scheduling.QueueShapeKnown, Status: metav1.ConditionFalse, Reason: "Evil", Message: evil, LastTransitionTime: metav1.Now()}}
	if err := w.Client.Status().Update(t.Context(), queue, &client.SubResourceUpdateOptions{}); err != nil {
		t.Logf("the queue's message: %v", err)
	}

	// These verbs print no data of other users, or print such data unchanged by design.
	tried := map[string]bool{"exec": true, "local": true, "version": true, "completion": true, "help": true,
		"ui": true} // package internal/console tests its pages
	for _, line := range []string{
		"get", "get -o wide", "get -A", "get job -o json", "get job -o yaml", "get -o name", "get ended --watch", "get " + evil,
		"describe job ended", "describe job -o yaml", "logs job", "logs " + evil, "run -f -", "run -f - --detach -o json",
		"queue list", "queue describe " + queue.Name, "queue describe " + evil, "tensorboard " + evil,
		"sweep", "sweep swept", "sweep " + evil, "sweep -f - --set a=\x1b[2J --detach", "sweep -f - --set " + evil,
		"rerun job --detach", "top", "pause job", "resume job", "scale job 3", "debug on job -o yaml", "debug off job", "pause ended", "history describe " + evil + " --console http://127.0.0.1:1",
		"validate -f -", "render -f -", "convert -f -", "delete job --wait=false",
	} {
		args := strings.Split(line, " ")
		tried[args[0]] = true
		call := w.start(manifest("name: ended, annotations: {a: \"\\e[2J\"}", 2, 0, kubelet.Run), args...)
		<-call.code
		out := call.out.String() + call.err.String()
		if strings.ContainsAny(out, "\x1b\u009b\x07") {
			t.Errorf("t9k %s wrote %q", line, out)
		}
		if line == "describe job ended" {
			w.contains(line, out, `evil \u001b[2J\u009b31m\u0007`)
		}
	}
	for verb := range strings.Lines(w.t9k("__complete", "")) {
		name, _, _ := strings.Cut(strings.TrimSpace(verb), "\t")
		if name != "" && !strings.HasPrefix(name, ":") && !tried[name] {
			t.Error(fmt.Errorf("the test does not cover verb %q", name))
		}
	}
}
