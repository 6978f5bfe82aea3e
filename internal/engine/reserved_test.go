package engine

import (
	"maps"
	"strings"
	"testing"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// TestTemplateDecidesNoQueue verifies that reserved labels and annotations of a template that got past admission have
// no effect, so that the template cannot put pods into a queue or group. Nor can it select the t9k-scheduler, or the
// node of a pod that the t9k-scheduler places. The template itself is not changed.
func TestTemplateDecidesNoQueue(t *testing.T) {
	for _, gang := range []*Gang{nil, {Queue: "q", MinMember: 1}} {
		p := newPlay(t, 1, 0)
		p.job.Gang = gang
		template := p.job.Roles[0].Template
		template.Labels = map[string]string{"mine": "yes", scheduling.LabelQueue: "vip", scheduling.LabelGroupName: "other", scheduling.LabelRole: "other",
			scheduling.GroupVersion.Group + "/any": "x", batch.LabelJobName: "other", batch.LabelReplicaRank: "7", "tensorstack.dev/tensorboard": "other"}
		template.Annotations = map[string]string{"mine": "yes", scheduling.GroupVersion.Group + "/any": "x", batch.AnnotationRestarts: "7"}
		template.Spec.SchedulerName, template.Spec.NodeName = scheduling.SchedulerName, "node"
		labels, annotations := maps.Clone(template.Labels), maps.Clone(template.Annotations)
		p.pass()
		pod := p.job.Pod(p.plan.Pods[0])
		want := map[string]string{scheduling.LabelQueue: "", scheduling.LabelGroupName: "", scheduling.LabelRole: ""}
		scheduler, node := "", "node"
		if gang != nil {
			want = map[string]string{scheduling.LabelQueue: "q", scheduling.LabelGroupName: "job", scheduling.LabelRole: "worker"}
			scheduler, node = scheduling.SchedulerName, ""
		}
		want[batch.LabelJobName], want[batch.LabelReplicaRank], want["mine"] = "job", "0", "yes"
		for key, value := range want {
			if pod.Labels[key] != value {
				t.Errorf("gang %v: label %s is %q, want %q", gang, key, pod.Labels[key], value)
			}
		}
		for key := range pod.Labels {
			if strings.HasSuffix(key, "/any") || key == "tensorstack.dev/tensorboard" {
				t.Errorf("gang %v: the template sets label %s", gang, key)
			}
		}
		if len(pod.Annotations) != 4 || pod.Annotations["mine"] != "yes" || pod.Annotations[batch.AnnotationRestarts] != "0" {
			t.Errorf("gang %v: annotations %v", gang, pod.Annotations)
		}
		if pod.Spec.SchedulerName != scheduler || pod.Spec.NodeName != node {
			t.Errorf("gang %v: scheduler %q, node %q", gang, pod.Spec.SchedulerName, pod.Spec.NodeName)
		}
		if !maps.Equal(labels, template.Labels) || !maps.Equal(annotations, template.Annotations) {
			t.Error("the template was changed")
		}
	}
}
