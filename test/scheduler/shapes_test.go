package scheduler

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/config"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/kinds/kindtest"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/testenv"
)

// kindsDir is the file system of package kinds.
var kindsDir = os.DirFS("../../internal/kinds")

// jobsOf returns a job of each kind by the name of the kind. Each job is in the queue and has two replicas that
// request the amount of CPU.
func (s *stage) jobsOf(queue, cpu string) map[string]client.Object {
	s.Helper()
	all := map[string]client.Object{}
	for _, k := range kinds.All {
		job := kindtest.Minimal(s, kindsDir, k)
		job.SetName("")
		job.SetGenerateName("job-")
		job.SetNamespace(metav1.NamespaceDefault)
		s.Must(unstructured.SetNestedField(job.Object, queue, "spec", "scheduler", "t9kScheduler", "queue"))
		role := rolesOf(job)[0]
		role["replicas"] = int64(2)
		setCPU(role, cpu)
		all[k.Name] = job
	}
	return all
}

// rolesOf returns the roles of a job. Changes of a role change the job.
func rolesOf(job *unstructured.Unstructured) []map[string]any {
	var roles []map[string]any
	for _, role := range job.Object["spec"].(map[string]any)["replicaSpecs"].([]any) {
		roles = append(roles, role.(map[string]any))
	}
	return roles
}

// setCPU sets the CPU limit of a role's first container, and thereby its request, because the API server defaults
// requests to limits.
func setCPU(role map[string]any, cpu string) {
	containers := role["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)
	containers[0].(map[string]any)["resources"] = map[string]any{"limits": map[string]any{"cpu": cpu}}
}

// profiles creates or replaces the ConfigMap with the resource shapes.
func (s *stage) profiles(data map[string]string) {
	s.Helper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: config.Namespace, Name: scheduling.ResourceShapes}, Data: data}
	err := s.Client.Create(s.Context(), m)
	if apierrors.IsAlreadyExists(err) {
		err = s.Client.Update(s.Context(), m)
	}
	s.Must(err)
}

// awaitShape waits until the queue's condition about its resource shape has the reason, and returns the queue.
func (s *stage) awaitShape(queue, reason string) *scheduling.Queue {
	s.Helper()
	q := &scheduling.Queue{}
	s.Await("queue "+queue+" has a profile with the reason "+reason, func() error {
		s.Must(s.Client.Get(s.Context(), client.ObjectKey{Name: s.own(queue)}, q))
		for _, c := range q.Status.Conditions {
			if c.Type == scheduling.QueueShapeKnown && c.Reason == reason && (c.Status == metav1.ConditionTrue) == (reason == scheduling.ReasonShapeFound) {
				return nil
			}
		}
		return fmt.Errorf("the conditions are %+v", q.Status.Conditions)
	})
	return q
}

// refused verifies that the API server refuses an object with a message that contains the words.
func (s *stage) refused(o client.Object, words ...string) {
	s.Helper()
	err := s.Client.Create(s.Context(), o, client.DryRunAll)
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			s.Errorf("not refused with %q: %v", w, err)
		}
	}
}

func (s *stage) accepted(o client.Object) {
	s.Helper()
	if err := s.Client.Create(s.Context(), o, client.DryRunAll); err != nil {
		s.Error(err)
	}
}

// TestPodsLargerThanTheProfileDoNotStart verifies, with the operator of the embedded cluster, that pods larger than the
// resource shapes of their queue do not start.
func TestPodsLargerThanTheProfileDoNotStart(t *testing.T) {
	t.Parallel()
	s := newStageOf(t, testenv.Options{Components: []string{local.Etcd, local.APIServer, local.CRDs, local.Webhook, local.Scheduler, local.Operator}})
	sized := func(q *scheduling.QueueSpec) { q.ResourceShapeProfile = "small" }
	s.node("n", 100, nil)
	s.queue("sized", "", 0, sized)
	s.queue("free", "", 0)
	job := func(cpu string) client.Object { return s.jobsOf("sized", cpu)["GenericJob"] }

	s.awaitShape("sized", scheduling.ReasonShapeNotFound)
	s.Await("the operator's webhook is in force", func() error {
		if err := s.Client.Create(t.Context(), job("1"), client.DryRunAll); err == nil {
			return errors.New("a job was accepted in a queue whose profile does not exist")
		}
		return nil
	})
	missing := "the ConfigMap t9k-system/resource-shapes has no key small, which is the queue's resourceShapeProfile: ask an administrator to add it"
	s.refused(job("1"), "spec.scheduler.t9kScheduler.queue: Forbidden: queue sized takes no pods", missing)
	s.Await("the webhook of pods is in force", func() error {
		if err := s.Client.Create(t.Context(), s.newPod("p", "1", inQueue("sized")), client.DryRunAll); err == nil {
			return errors.New("a pod was accepted in a queue whose profile does not exist")
		}
		return nil
	})
	s.refused(s.newPod("p", "1", inQueue("sized")), "queue sized takes no pods", missing)
	s.checkLines(s.t9k("queue", "describe", "sized"), "Largest pod Nothing new starts: "+missing+".")
	s.profiles(map[string]string{"small": "cpu: [4]"})
	s.awaitShape("sized", scheduling.ReasonShapeInvalid)
	s.refused(job("1"), "queue sized takes no pods", "cannot be read", "ask an administrator to correct it")
	for _, o := range s.jobsOf("free", "50") {
		s.accepted(o)
	}

	s.profiles(map[string]string{"small": "cpu: 4\nmemory: 8Gi\n"})
	if q := s.awaitShape("sized", scheduling.ReasonShapeFound); q.Status.ResourceShape == nil || q.Status.ResourceShape.Requests.Cpu().String() != "4" {
		t.Errorf("the status is %+v", q.Status)
	}
	s.checkLines(s.t9k("queue", "describe", "sized"), "Largest pod 4 cpu, 8Gi memory (profile small)")
	t.Run("jobs", func(t *testing.T) { s.with(t).shapesOfJobs() })
	t.Run("counts", func(t *testing.T) { s.with(t).countedWithTheirGroup() })
	t.Run("pods", func(t *testing.T) { s.with(t).shapesOfPods() })
	t.Run("past admission", func(t *testing.T) { s.with(t).shapesPastAdmission() })
}

// with returns the stage for a sub-test.
func (s *stage) with(t *testing.T) *stage { return &stage{Test: s.In(t), prefix: s.prefix} }

func inQueue(queue string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{scheduling.LabelQueue: queue} }
}

// shapesOfJobs verifies that the API server refuses a job of any kind if the pods of one of its roles are too large.
func (s *stage) shapesOfJobs() {
	for kind, o := range s.jobsOf("sized", "4500m") {
		s.refusedAsLarge(o, kind, "spec.replicaSpecs[0].template.spec")
	}
	job := s.jobsOf("sized", "1")["GenericJob"].(*unstructured.Unstructured)
	second := runtime.DeepCopyJSON(rolesOf(job)[0])
	second["type"] = "second"
	setCPU(second, "4500m")
	s.Must(unstructured.SetNestedSlice(job.Object, []any{rolesOf(job)[0], second}, "spec", "replicaSpecs"))
	s.refusedAsLarge(job, "the second role", "spec.replicaSpecs[1].template.spec")
	for _, o := range s.jobsOf("sized", "4") {
		s.accepted(o)
	}
	for _, o := range s.jobsOf("free", "50") {
		s.accepted(o)
	}
}

// refusedAsLarge verifies that the API server refuses a job because the pods of the role with the given field are
// larger than the profile allows.
func (s *stage) refusedAsLarge(job client.Object, name, field string) {
	s.Helper()
	err := s.Client.Create(s.Context(), job, client.DryRunAll)
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || len(status.Status().Details.Causes) != 1 {
		s.Errorf("%s: %v", name, err)
		return
	}
	cause := status.Status().Details.Causes[0]
	const want = "Forbidden: a pod is too large for queue sized, whose resourceShapeProfile is small: 4500m cpu requested, 4 allowed: request less, or use another queue"
	if cause.Field != field || cause.Message != want {
		s.Errorf("%s: %s: %s", name, cause.Field, cause.Message)
	}
}

// countedWithTheirGroup verifies that pods that name only a group count in the status of the group's queue.
func (s *stage) countedWithTheirGroup() {
	s.podGroup("named", "free", 2)
	for i := range 2 {
		s.pod(fmt.Sprint("named-", i), "2", inGroup("named"))
	}
	s.awaitBound("named", 2)
	s.awaitQueue("free", func(q *scheduling.QueueStatus) bool { return q.Pods.Pending == 2 && q.Allocated.Cpu().Value() == 4 })
	s.awaitQueue(scheduling.DefaultQueue, func(q *scheduling.QueueStatus) bool { return q.Pods.Pending == 0 && len(q.Allocated) == 0 })
}

func ownedBy(apiVersion, kind string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "owner", UID: "owner"}}
	}
}

// shapesOfPods verifies which pods the API server refuses as too large: it adds up requests as the scheduler does, and
// finds the queue by the group, by the label, or as the default queue.
func (s *stage) shapesOfPods() {
	s.podGroup("grouped", "sized", 1)
	large := func(c ...corev1.Container) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.InitContainers = c }
	}
	requesting := func(cpu string) corev1.Container {
		return corev1.Container{Name: "init", Image: "none", Resources: corev1.ResourceRequirements{Requests: cpus(cpu)}}
	}
	sidecar := requesting("2")
	always := corev1.ContainerRestartPolicyAlways
	sidecar.RestartPolicy = &always
	const words = "a pod is too large for queue sized, whose resourceShapeProfile is small: 5 cpu requested, 4 allowed: request less, or use another queue"
	s.Await("the webhook has read the group", func() error {
		if err := s.Client.Create(s.Context(), s.newPod("p", "5", inGroup("grouped")), client.DryRunAll); err == nil {
			return errors.New("a pod of the group that is too large was accepted")
		}
		return nil
	})
	for name, pod := range map[string]*corev1.Pod{
		"its queue":             s.newPod("p", "5", inQueue("sized")),
		"its group":             s.newPod("p", "5", inGroup("grouped")),
		"the group, not labels": s.newPod("p", "5", inGroup("grouped"), func(p *corev1.Pod) { p.Labels[scheduling.LabelQueue] = "free" }),
		"labels alone":          s.newPod("p", "5", inQueue("sized"), s.byDefault),
		"an init container":     s.newPod("p", "1", inQueue("sized"), large(requesting("5"))),
		"a sidecar":             s.newPod("p", "3", inQueue("sized"), large(sidecar)),
		"a controller's doing":  s.newPod("p", "5", inQueue("sized"), ownedBy("apps/v1", "ReplicaSet")),
		"a limit alone": s.newPod("p", "1", inQueue("sized"), func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: cpus("5")}
		}),
		"the pod as a whole": s.newPod("p", "1", inQueue("sized"), func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: cpus("5")}
		}),
	} {
		if err := s.Client.Create(s.Context(), pod, client.DryRunAll); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), words) {
			s.Errorf("a pod that is too large by %s: %v", name, err)
		}
	}
	for _, pod := range []*corev1.Pod{
		s.newPod("p", "4", inQueue("sized"), large(requesting("4"))), s.newPod("p", "3", inQueue("sized")), s.newPod("p", "4", inGroup("grouped")),
		s.newPod("p", "50", inQueue("free")), s.newPod("p", "50"), s.newPod("p", "50", s.byDefault), s.newPod("p", "50", inGroup("unknown")),
		// The webhook does not check pods of jobs, because it has checked their jobs.
		s.newPod("p", "5", inQueue("sized"), func(p *corev1.Pod) { p.Labels[batch.LabelJobName] = "j" }),
	} {
		s.accepted(pod)
	}
	q := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: scheduling.DefaultQueue}}
	s.Must(s.TryUpdate(q, func() { q.Spec.ResourceShapeProfile = "small" }))
	s.Await("pods that name no queue belong to the default queue", func() error {
		if err := s.Client.Create(s.Context(), s.newPod("p", "5"), client.DryRunAll); err == nil || !strings.Contains(err.Error(), "too large for queue default") {
			return fmt.Errorf("a pod that is too large: %w", err)
		}
		return nil
	})
	s.accepted(s.newPod("p", "50", s.byDefault))
}

func inGroup(group string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{scheduling.LabelGroupName: group} }
}

// shapesPastAdmission verifies that pods that are too large do not start even if the API server has accepted them.
func (s *stage) shapesPastAdmission() {
	s.group("runs", "sized", 2, "4")
	s.awaitBound("runs", 2)
	s.Must(s.Env.StopComponent(local.Operator))
	s.group("large", "sized", 2, "5") // the operator, which serves the webhook, is stopped
	s.group("fits", "sized", 2, "4")
	s.group("other", "free", 2, "5")
	job := s.jobsOf("sized", "5")["GenericJob"]
	job.SetName("job")
	s.Must(s.Client.Create(s.Context(), job))
	single := s.pod("single", "5", inQueue("sized"))
	s.awaitBound("fits", 2)
	s.awaitBound("other", 2)
	s.awaitReason("large", scheduling.ReasonPodTooLarge)
	if m := s.condition("large").Message; !strings.HasSuffix(m, " is too large for queue sized: 5 cpu requested, 4 allowed") {
		s.Errorf("the group's message is: %s", m)
	}
	s.Await("the pod without a group reports its reason", func() error {
		s.Must(s.Client.Get(s.Context(), client.ObjectKeyFromObject(single), single))
		if !slices.ContainsFunc(single.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Message == "pod single is too large for queue sized: 5 cpu requested, 4 allowed"
		}) {
			return fmt.Errorf("its conditions are %+v", single.Status.Conditions)
		}
		return nil
	})
	if n := s.bound("large"); n != 0 || single.Spec.NodeName != "" {
		s.Errorf("%d pods of the group that is too large are bound, and the single one to %q", n, single.Spec.NodeName)
	}
	s.Must(s.Env.StartComponent(local.Operator))
	s.awaitReason("job", scheduling.ReasonPodTooLarge)
	s.Await("the job reports its reason", func() error {
		if text := s.t9k("describe", "job"); !strings.Contains(text, "pod job-worker-0 is too large for queue sized: 5 cpu requested, 4 allowed") {
			return errors.New(text)
		}
		return nil
	})

	s.profiles(map[string]string{"tiny": "cpu: 1"})
	s.awaitShape("sized", scheduling.ReasonShapeNotFound)
	s.awaitReason("large", scheduling.ReasonShapeUnknown)
	if m := s.condition("large").Message; !strings.Contains(m, "resourceShapeProfile small in the ConfigMap t9k-system/resource-shapes") {
		s.Errorf("the group's message is: %s", m)
	}
	if s.bound("runs") != 2 || s.bound("fits") != 2 {
		s.Error("what runs does not go on")
	}
	s.profiles(map[string]string{"small": "cpu: 5"})
	s.awaitBound("large", 2)
	s.awaitBound("job", 2)
	s.Await("the single pod is bound", func() error {
		s.Must(s.Client.Get(s.Context(), client.ObjectKeyFromObject(single), single))
		if single.Spec.NodeName == "" {
			return fmt.Errorf("its conditions are %+v", single.Status.Conditions)
		}
		return nil
	})
	if q := s.awaitShape("sized", scheduling.ReasonShapeFound); q.Status.ResourceShape.Requests.Cpu().Cmp(resource.MustParse("5")) != 0 {
		s.Errorf("the status is %+v", q.Status)
	}
}
