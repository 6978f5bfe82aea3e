package integration

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/kinds/kindtest"
	"tensorstack.dev/batch/test/kit/apiproxy"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
)

// TestJobCreatesGroupAndServiceBeforePods verifies that the operator creates the PodGroup and the Service of a job
// before the job's first pod, and that both belong to the job and follow its spec.
func TestJobCreatesGroupAndServiceBeforePods(t *testing.T) {
	w := newWorld(t)
	p := apiproxy.Start(t, w.Env.Config)
	startOperator(t, p.Kubeconfig)
	job := jobs.New("ring", jobs.Role("node", 3, kubelet.Run))
	job.Spec.Service = &batch.ServiceOption{Ports: []corev1.ServicePort{{Name: "talk", Port: 7000}}}
	five := int32(5)
	job.Spec.Scheduler = &batch.SchedulePolicy{T9kScheduler: &batch.T9kScheduler{Queue: "default", Priority: &five}}
	w.Create(job)
	w.awaitPhase("ring", batch.JobRunning)

	var created []string
	for _, r := range p.Seen("POST", "s") {
		kind := r.Path[strings.LastIndex(r.Path, "/")+1:]
		if strings.HasSuffix(r.Path, "/namespaces/"+w.Namespace+"/"+kind) && kind != "events" && !slices.Contains(created, kind) {
			created = append(created, kind)
		}
	}
	if want := []string{"podgroups", "services", "pods"}; !slices.Equal(created, want) {
		t.Errorf("created in the order %v, not %v", created, want)
	}
	if n := len(p.Seen("PUT", w.Namespace+"/genericjobs/ring/status")); n > 5 {
		t.Errorf("%d status writes for a job that started without incident", n)
	}

	service, group := &corev1.Service{}, &scheduling.PodGroup{}
	w.Must(w.Get("ring", service))
	w.Must(w.Get("ring", group))
	owned := []client.Object{service, group}
	for _, pod := range w.pods() {
		owned = append(owned, pod)
	}
	if len(owned) != 5 {
		t.Fatalf("%d objects, not 5", len(owned))
	}
	for _, o := range owned {
		ref := metav1.GetControllerOf(o)
		if ref == nil || ref.UID != job.UID || ref.Kind != "GenericJob" || ref.Name != "ring" ||
			ref.BlockOwnerDeletion == nil || !*ref.BlockOwnerDeletion || len(o.GetOwnerReferences()) != 1 {
			t.Errorf("%T %s is owned by %v", o, o.GetName(), o.GetOwnerReferences())
		}
	}
	if s := service.Spec; s.ClusterIP != corev1.ClusterIPNone || !s.PublishNotReadyAddresses || len(s.Ports) != 1 || s.Ports[0].Port != 7000 {
		t.Errorf("the Service is %+v", s)
	}
	for key, value := range service.Spec.Selector {
		if pod := w.pods()["ring-node-0"]; pod.Labels[key] != value {
			t.Errorf("the Service selects %s=%s, and a pod has %q", key, value, pod.Labels[key])
		}
	}
	if g := group.Spec; g.Queue != "default" || g.Priority != 5 || g.MinMember != 3 ||
		len(g.Roles) != 1 || g.Roles[0] != (scheduling.PodGroupRole{Name: "node", MinMember: 3}) {
		t.Errorf("the PodGroup is %+v", g)
	}

	w.patch("ring", `{"spec":{"scheduler":{"t9kScheduler":{"priority":50}}}}`)
	w.Await("the group has the job's new priority", func() error {
		w.Must(w.Get("ring", group))
		if group.Spec.Priority != 50 {
			return fmt.Errorf("it is %d", group.Spec.Priority)
		}
		return nil
	})
	for name, pod := range w.pods() {
		if pod.UID != owned[slices.IndexFunc(owned, func(o client.Object) bool { return o.GetName() == name })].GetUID() {
			t.Errorf("pod %s was replaced", name)
		}
	}
}

// TestOperatorRestoresObjectsOfAJob verifies that the operator restores deleted and changed objects and an
// overwritten status of a job.
func TestOperatorRestoresObjectsOfAJob(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	job := jobs.New("job", jobs.Role("w", 2, kubelet.Run))
	job.Spec.Service = &batch.ServiceOption{}
	job.Spec.Scheduler = &batch.SchedulePolicy{T9kScheduler: &batch.T9kScheduler{Queue: "default"}}
	w.Create(job)
	before := w.awaitPhase("job", batch.JobRunning)

	for _, o := range []client.Object{&corev1.Service{}, &scheduling.PodGroup{}} {
		w.Must(w.Get("job", o))
		old := o.GetUID()
		w.Must(w.Client.Delete(t.Context(), o))
		w.Await(fmt.Sprintf("the %T is created again", o), func() error {
			if err := w.Get("job", o); err != nil {
				return err
			}
			if o.GetUID() == old {
				return errors.New("it is the old object")
			}
			return nil
		})
	}
	group := &scheduling.PodGroup{}
	w.Must(w.Get("job", group))
	w.Update(group, func() { group.Spec.MinMember = 3 })
	w.Await("the group's minimum is restored", func() error {
		w.Must(w.Get("job", group))
		if group.Spec.MinMember != 2 {
			return fmt.Errorf("it is %d", group.Spec.MinMember)
		}
		return nil
	})

	edited := w.job("job")
	w.UpdateStatus(edited, func() {
		edited.Status.Aggregate = batch.Aggregate{Succeeded: 7}
		edited.Status.Phase = batch.JobPending
		edited.Status.Conditions = nil
	})
	w.Await("the status is restored", func() error {
		now := w.job("job")
		if now.Status.Phase != batch.JobRunning || now.Status.Aggregate != before.Status.Aggregate || len(now.Status.Conditions) != 6 {
			return fmt.Errorf("it is %+v", now.Status)
		}
		return nil
	})

	w.Must(w.Client.Delete(t.Context(), w.pods()["job-w-1"]))
	w.Await("the deleted pod is replaced", func() error {
		j := w.job("job")
		if r := j.Status.Tasks[0].Replicas[1]; r.Attempt != 1 || r.RestartCount != 0 || r.Phase != batch.ReplicaRunning {
			return fmt.Errorf("it is %+v", r)
		}
		return nil
	})
}

// TestInvalidJobFailsAndCreatesNothing verifies that the controller fails a job with errors that its CRD cannot detect,
// reports them in the status, and creates no objects.
func TestInvalidJobFailsAndCreatesNothing(t *testing.T) {
	w := newWorld(t)
	raw, err := dynamic.NewForConfig(w.Env.Config)
	w.Must(err)
	resource := raw.Resource(batch.GroupVersion.WithResource("genericjobs")).Namespace(w.Namespace)
	startOperator(t, w.Env.Kubeconfig)
	words := map[string]string{}
	for i, m := range kindtest.Manifests(t, os.DirFS(kindsDir), "testdata/bad") {
		document := documents(t, m.Data)[0]
		if len(documents(t, m.Data)) > 1 {
			continue // the second document changes the first
		}
		if document.GetName() == "train" {
			document.SetName(fmt.Sprintf("train-%d", i))
		}
		document.SetNamespace(w.Namespace)
		_, err := resource.Create(t.Context(), document, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		if err == nil {
			text, err := os.ReadFile(kindsDir + "/testdata/bad/" + m.Name + ".validate.txt")
			w.Must(err)
			words[document.GetName()] = string(text)
		} else if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
	if len(words) < 10 {
		t.Errorf("only %d manifests pass the CRDs", len(words))
	}
	for name, text := range words {
		j := w.awaitPhase(name, batch.JobFailed)
		c := jobs.Condition(j, batch.JobFailedCondition)
		if c.Reason != batch.ReasonInvalidSpec || c.Status != metav1.ConditionTrue {
			t.Errorf("%s: the condition Failed is %s, %s", name, c.Status, c.Reason)
		}
		for line := range strings.Lines(text) {
			if !strings.Contains(c.Message, strings.TrimSuffix(line, "\n")) {
				t.Errorf("%s: the message lacks %q: %s", name, line, c.Message)
			}
		}
		w.Await("the event of "+name, func() error {
			all := w.events(name)
			if len(all) != 1 || !strings.HasPrefix(all[0], "InvalidSpec: ") {
				return fmt.Errorf("the events are %q", all)
			}
			return nil
		})
	}
	w.settle()
	services, groups := &corev1.ServiceList{}, &scheduling.PodGroupList{}
	w.Must(w.Client.List(t.Context(), services, client.InNamespace(w.Namespace)))
	w.Must(w.Client.List(t.Context(), groups, client.InNamespace(w.Namespace)))
	if len(w.pods())+len(services.Items)+len(groups.Items) > 0 {
		t.Errorf("there are %d pods, %d Services and %d PodGroups", len(w.pods()), len(services.Items), len(groups.Items))
	}
}

// TestSucceededPodThatIsDeletedDoesNotRunAgain deletes a succeeded pod before the operator can record its success, and
// verifies that the operator does not run the replica again.
func TestSucceededPodThatIsDeletedDoesNotRunAgain(t *testing.T) {
	w := newWorld(t)
	p := apiproxy.Start(t, w.Env.Config)
	startOperator(t, p.Kubeconfig)
	w.Create(jobs.New("job", jobs.Role("w", 2, kubelet.Run)))
	w.Await("the status contains the pods", func() error {
		for _, task := range w.job("job").Status.Tasks {
			for _, r := range task.Replicas {
				if r.Phase == batch.ReplicaRunning && r.Name == "job-w-0" {
					return nil
				}
			}
		}
		return errors.New("it lacks a pod")
	})
	states, err := w.Core.CoreV1().Pods(w.Namespace).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=job-w-0"})
	w.Must(err)
	defer states.Stop()
	p.Decide(func(r *http.Request) apiproxy.Fate {
		return apiproxy.Fate{Lost: r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, w.Namespace+"/genericjobs/job/status")}
	})
	w.finish("job-w-0", 0)
	w.Must(w.Client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "job-w-0"}}))
	for e := range states.ResultChan() {
		pod := e.Object.(*corev1.Pod)
		if g := pod.DeletionGracePeriodSeconds; pod.DeletionTimestamp != nil && (g == nil || *g != 0) {
			t.Errorf("a pod that has ended got a grace period: %v", pod.ObjectMeta)
		}
		if e.Type == watch.Deleted {
			break
		}
	}
	p.Decide(nil)
	w.finish("job-w-1", 0)
	w.awaitPhase("job", batch.JobSucceeded)
	if n := len(p.Seen("POST", w.Namespace+"/pods")); n != 2 {
		t.Errorf("%d pods were created, want 2", n)
	}
}

// TestJobWaitsForQuota verifies that a job reports the API server's message if a quota refuses its pods, that the
// operator retries at growing intervals, and that the job continues when the quota is raised.
func TestJobWaitsForQuota(t *testing.T) {
	w := newWorld(t)
	p := apiproxy.Start(t, w.Env.Config)
	startOperator(t, p.Kubeconfig)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "two"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("2")}}}
	w.Create(quota)
	w.Await("the quota is in force", func() error {
		w.Must(w.Get("two", quota))
		if len(quota.Status.Used) == 0 {
			return errors.New("its use has not been counted")
		}
		return nil
	})
	w.Create(jobs.New("job", jobs.Role("w", 4, kubelet.Run)))
	c := w.awaitReason("job", batch.ReasonCreateRefused)
	if !strings.Contains(c.Message, "exceeded quota: two") {
		t.Errorf("the message is not the API server's: %s", c.Message)
	}

	// The intervals double, so few requests precede an interval of one second.
	refusals := func() []apiproxy.Request {
		return slices.DeleteFunc(p.Seen("POST", w.Namespace+"/pods"), func(r apiproxy.Request) bool { return r.Code != 403 })
	}
	w.Await("two attempts are a second apart", func() error {
		all := refusals()
		for i := range all {
			if i > 0 && all[i].At.Sub(all[i-1].At) > time.Second {
				return nil
			}
		}
		return fmt.Errorf("there were %d", len(all))
	})
	if n := len(refusals()); n > 30 {
		t.Errorf("%d requests were refused before the first pause of a second", n)
	}
	if n := len(p.Seen("PUT", w.Namespace+"/genericjobs/job/status")); n > 8 {
		t.Errorf("the status was written %d times", n)
	}
	if all := w.events("job"); len(slices.DeleteFunc(all, func(e string) bool { return !strings.HasPrefix(e, "CreateRefused") })) > 1 {
		t.Errorf("more than one event reports it: %q", all)
	}

	raise := []byte(`{"spec":{"hard":{"pods":"4"}}}`)
	w.Must(w.Client.Patch(t.Context(), quota, client.RawPatch(types.MergePatchType, raise)))
	if j := w.awaitPhase("job", batch.JobRunning); j.Status.BackoffCount != 0 {
		t.Errorf("%d restarts", j.Status.BackoffCount)
	}
}
