package integration

import (
	"context"
	"fmt"
	"maps"
	"testing"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
)

// TestJobFindsPodThatLostItsLabels verifies, in a cluster without the policy that protects the labels of pods, that a
// job continues when its pod loses its labels: the pod belongs to the job by its owner reference, and the operator
// restores the labels.
func TestJobFindsPodThatLostItsLabels(t *testing.T) {
	w := newWorld(t)
	w.withoutRule("t9k-pod-labels")
	inQueue := &batch.SchedulePolicy{T9kScheduler: &batch.T9kScheduler{Queue: "default"}}
	for name, test := range map[string]struct {
		scheduler *batch.SchedulePolicy
		scope     batch.RestartScope
		// If down is true, the operator does not run while the labels are removed. If ends is true, the pod finishes
		// during this time with exit code exit.
		down, ends bool
		exit       int32
		want       batch.ReplicaStatus
	}{
		"runs":                            {},
		"runs-in-a-queue":                 {scheduler: inQueue},
		"restarts-together":               {scope: batch.RestartJob, want: batch.ReplicaStatus{Attempt: 1}},
		"succeeds-meanwhile":              {down: true, ends: true},
		"fails-meanwhile":                 {down: true, ends: true, exit: 1, want: batch.ReplicaStatus{Attempt: 1, RestartCount: 1}},
		"fails-meanwhile-in-a-queue":      {scheduler: inQueue, down: true, ends: true, exit: 1, want: batch.ReplicaStatus{Attempt: 1, RestartCount: 1}},
		"runs-while-the-operator-is-away": {down: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := w.in(t)
			operator := startOperator(t, w.Env.Kubeconfig)
			job := jobs.New(name, jobs.Restarting(jobs.Role("w", 2, kubelet.Run), batch.RestartOnFailure, 1))
			job.Spec.Scheduler, job.Spec.ReplicaSpecs[0].RestartPolicy.Scope = test.scheduler, test.scope
			w.Create(job)
			w.awaitPhase(name, batch.JobRunning)
			first, second := name+"-w-0", name+"-w-1"
			lost := w.pods()[second]
			if test.down {
				operator.Kill()
			}
			w.unlabel(second)
			if test.ends {
				w.finish(second, test.exit)
			}
			if test.down {
				startOperator(t, w.Env.Kubeconfig)
			}
			w.Await("the replica has a pod with all labels", func() error {
				pod := &corev1.Pod{}
				if err := w.Get(second, pod); err != nil {
					return err
				}
				want := maps.Clone(lost.Labels)
				want[batch.LabelReplicaAttempt] = fmt.Sprint(test.want.Attempt)
				if !maps.Equal(pod.Labels, want) || (pod.UID == lost.UID) != (test.want.Attempt == 0) {
					return fmt.Errorf("pod %s, which was %s, has the labels %v", pod.UID, lost.UID, pod.Labels)
				}
				return nil
			})
			if !test.ends || test.exit != 0 {
				w.finish(second, 0)
			}
			w.finish(first, 0)
			end := w.awaitPhase(name, batch.JobSucceeded)
			if r := end.Status.Tasks[0].Replicas[1]; r.Attempt != test.want.Attempt || r.RestartCount != test.want.RestartCount {
				t.Errorf("the replica is in attempt %d after %d restarts, not %d after %d", r.Attempt, r.RestartCount, test.want.Attempt, test.want.RestartCount)
			}
		})
	}
}

// withoutRule disables an admission policy until the end of the test by deleting its binding.
func (w *world) withoutRule(name string) {
	w.Helper()
	binding := &admissionregistration.ValidatingAdmissionPolicyBinding{}
	w.Must(w.Client.Get(w.Context(), types.NamespacedName{Name: name}, binding))
	w.Must(w.Client.Delete(w.Context(), binding))
	w.Cleanup(func() {
		again := &admissionregistration.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: binding.Labels}, Spec: binding.Spec}
		if err := w.Client.Create(context.Background(), again); err != nil {
			w.Error(err)
		}
	})
}

// unlabel removes from a pod the labels by which the operator finds it.
func (w *world) unlabel(pod string) {
	w.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:null,%q:null,%q:null,%q:null}}}`, batch.LabelJobName, batch.LabelJobKind, batch.LabelReplicaType, batch.LabelReplicaRank)
	w.Await("pod "+pod+" loses its labels", func() error { // the disabled policy may still apply for a moment
		o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: pod}}
		return w.Client.Patch(w.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch)))
	})
}
