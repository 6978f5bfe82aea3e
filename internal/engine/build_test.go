package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

func TestRanksRoundTrip(t *testing.T) {
	for text, want := range map[string][]int{"0": {0}, "0-2": {0, 1, 2}, "0,2-3,9": {0, 2, 3, 9}, "0-2,5,7-8": {0, 1, 2, 5, 7, 8}, "": nil} {
		if got := FormatRanks(want); got != text {
			t.Errorf("%v: got %q, want %q", want, got, text)
		}
		var got []int
		EachRank(text, len(want), func(r int) { got = append(got, r) })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}

func TestPodsCarryNamesNetworkAndGroup(t *testing.T) {
	p := newPlay(t, 1, 0)
	p.job.Service = &Service{}
	p.job.Gang = &Gang{Queue: "q", Priority: 7, MinMember: 1, ByRole: true}
	p.job.Roles[0].Template.Labels = map[string]string{"mine": "1", batch.LabelJobName: "forged"}
	p.pass()
	if kind := p.plan.Create[0].GetObjectKind().GroupVersionKind().Kind; kind != "PodGroup" {
		t.Errorf("%s is created first, want the PodGroup", kind)
	}
	pod := p.pod(0)
	if diff := cmp.Diff(map[string]string{
		"mine": "1", batch.LabelJobName: "job", batch.LabelJobKind: "GenericJob", batch.LabelComponent: "genericjob",
		batch.LabelReplicaType: "worker", batch.LabelReplicaRank: "0", batch.LabelReplicaAttempt: "0",
		"scheduler.tensorstack.dev/group-name": "job", "scheduler.tensorstack.dev/queue": "q", "scheduler.tensorstack.dev/role": "worker",
	}, pod.Labels); diff != "" {
		t.Error(diff)
	}
	if pod.Spec.Hostname != "job-worker-0" || pod.Spec.Subdomain != "job" || pod.Spec.SchedulerName != "t9k-scheduler" ||
		pod.Spec.DNSConfig.Searches[0] != "job.ns.svc.cluster.local" || pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("%+v", pod.Spec)
	}
}

// TestPodsAreBuiltWhenTheyAreSent verifies that a plan contains no built pods, because the pods of a large job do not
// fit into memory together.
func TestPodsAreBuiltWhenTheyAreSent(t *testing.T) {
	p := newPlay(t, 3, 0)
	built := 0
	p.job.Roles[0].Expand = func(int, *corev1.PodSpec) { built++ }
	plan := Next(p.job, Seen{Now: start, Service: true}, Config{})
	if len(plan.Pods) != 3 || built != 0 {
		t.Fatalf("a plan of %d pods has built %d, want 3 and 0", len(plan.Pods), built)
	}
	for o := range plan.Objects(p.job) {
		if built != 1 || o.GetName() != "job-worker-0" {
			t.Errorf("%s is the first object, and %d pods are built by then", o.GetName(), built)
		}
		break
	}
}
