package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/gate"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/namespace"
)

// awaitReason waits until a job's Running condition has the reason and a message that contains the parts.
func (s *space) awaitReason(job string, reason batch.Reason, parts ...string) {
	s.Helper()
	s.awaitJob(job, "reason "+string(reason)+" with "+strings.Join(parts, ", "), func(j *batch.GenericJob) bool {
		c := jobs.Condition(j, batch.JobRunningCondition)
		for _, part := range parts {
			if !strings.Contains(c.Message, part) {
				return false
			}
		}
		return c.Reason == reason
	})
}

// TestJobReportsMissingConfigMap verifies that a job reports the ConfigMap that its pods lack, and continues when it is
// created. The test is not parallel, so that it runs before most others: on a busy node, the kubelet takes minutes
// until it looks for the ConfigMap again.
func TestJobReportsMissingConfigMap(t *testing.T) {
	settings := corev1.LocalObjectReference{Name: "settings"}
	for name, add := range map[string]func(*corev1.PodSpec){
		"environment": func(p *corev1.PodSpec) {
			p.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: settings}}}
		},
		"volume": func(p *corev1.PodSpec) {
			p.Volumes = []corev1.Volume{{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: settings}}}}
			p.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "settings", MountPath: "/settings"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpace(t)
			worker := role("worker", 1, "exit 0")
			add(&worker.Template.Spec)
			s.Create(s.newJob("lacking", worker))
			s.awaitReason("lacking", batch.ReasonNotStarted, "lacking-worker-0", `configmap "settings" not found`)
			s.awaitEvent("lacking", batch.ReasonNotStarted, `configmap "settings" not found`)
			s.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"KEY": "value"}})
			s.awaitPhase("lacking", batch.JobSucceeded)
		})
	}
}

// TestJobReportsMissingVolumeClaim verifies that a job reports the PersistentVolumeClaim that its pods lack.
func TestJobReportsMissingVolumeClaim(t *testing.T) {
	s := newSpace(t)
	worker := role("worker", 1, "exit 0")
	worker.Template.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	s.Create(s.newJob("lacking", worker))
	s.awaitReason("lacking", batch.ReasonUnschedulable, "lacking-worker-0", `persistentvolumeclaim "data" not found`)
	s.awaitEvent("lacking", batch.ReasonUnschedulable, `persistentvolumeclaim "data" not found`)
}

// TestJobReportsExhaustedResourceQuota verifies that a job whose pods a ResourceQuota refuses reports the API server's
// message, and continues when the quota is raised.
func TestJobReportsExhaustedResourceQuota(t *testing.T) {
	s := newSpace(t)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "small"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}}}
	s.Create(quota)
	namespace.AwaitList(s.Test, "the quota is in force", &corev1.ResourceQuotaList{}, func(q []*corev1.ResourceQuota) bool {
		return len(q) == 1 && len(q[0].Status.Hard) > 0
	})
	s.Create(s.newJob("many", role("worker", 3, gate.Obey))) // finished pods would not count
	s.awaitReason("many", batch.ReasonCreateRefused, "exceeded quota: small")
	s.awaitEvent("many", batch.ReasonCreateRefused, "exceeded quota: small")
	raised := quota.DeepCopy()
	raised.Spec.Hard[corev1.ResourcePods] = resource.MustParse("10")
	if err := s.Client.Patch(t.Context(), raised, client.MergeFrom(quota)); err != nil {
		t.Fatal(err)
	}
	for rank := range 3 {
		s.order(fmt.Sprintf("many-worker-%d", rank), 0)
	}
	s.awaitPhase("many", batch.JobSucceeded)
	if n := occurrences(s.Events(), "many", string(batch.ReasonCreateRefused)); n != 1 {
		t.Errorf("%d events report the refusal, want 1", n)
	}
}

// TestJobWaitsForTakenNames verifies that the operator does not touch a pod or Service of another owner whose name a
// job needs, that the job reports the owner, and that it continues when the name is free.
func TestJobWaitsForTakenNames(t *testing.T) {
	t.Parallel()
	owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "somebody", Controller: new(true)}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "wanted-worker-0"}, Spec: role("x", 1, "exec sleep 1000000").Template.Spec}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "wanted"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	for name, taken := range map[string]client.Object{"pod": pod, "service": service} {
		t.Run(name, func(t *testing.T) {
			s := newSpace(t)
			somebody := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "somebody"}}
			s.Create(somebody)
			owner := owner[0]
			owner.UID = somebody.UID
			taken.SetOwnerReferences([]metav1.OwnerReference{owner})
			// The operator does not adopt a pod with the labels of the job's own pods either.
			taken.SetLabels(map[string]string{batch.LabelJobName: "wanted", batch.LabelJobKind: "GenericJob"})
			s.Create(taken)
			uid := taken.GetUID()
			j := s.newJob("wanted", role("worker", 2, "exit 0"))
			j.Spec.Service = &batch.ServiceOption{Ports: []corev1.ServicePort{{Port: 80}}}
			s.Create(j)
			s.awaitReason("wanted", batch.ReasonNameTaken, `ConfigMap "somebody"`, taken.GetName())
			s.awaitEvent("wanted", batch.ReasonNameTaken, `ConfigMap "somebody"`)
			if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(taken), taken); err != nil || taken.GetUID() != uid || taken.GetDeletionTimestamp() != nil {
				t.Fatalf("the object of another owner: %v, %v", err, taken)
			}
			if err := s.Client.Delete(t.Context(), taken); err != nil {
				t.Fatal(err)
			}
			s.awaitPhase("wanted", batch.JobSucceeded)
		})
	}
}

// TestJobReportsRefusedPod verifies that a job whose pod the API server refuses permanently reports the message, and
// that the operator does not write the job's status again and again.
func TestJobReportsRefusedPod(t *testing.T) {
	s := newSpace(t)
	worker := role("worker", 1, "exit 0")
	worker.Template.Spec.PriorityClassName = "nowhere-to-be-found"
	s.Create(s.newJob("refused", worker))
	s.awaitReason("refused", batch.ReasonCreateRefused, "nowhere-to-be-found")
	s.awaitEvent("refused", batch.ReasonCreateRefused, "nowhere-to-be-found")
	s.fence()
	if n := s.history.Writes("refused"); n > 3 {
		t.Errorf("the status was written %d times", n)
	}
}
