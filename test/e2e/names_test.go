package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/test/kit/gate"
)

// TestPodsHaveDocumentedNamesAndLabels verifies the names, host names, labels, annotations and owners of a job's pods,
// and the job's Service.
func TestPodsHaveDocumentedNamesAndLabels(t *testing.T) {
	s := newSpace(t)
	worker := role("worker", 2, gate.Obey)
	worker.Template.Labels = map[string]string{"app": "mine"}
	worker.Template.Annotations = map[string]string{"note": "kept"}
	j := s.newJob("names", role("master", 1, gate.Obey), worker)
	j.Spec.Service = &batch.ServiceOption{Ports: []corev1.ServicePort{{Name: "http", Port: 8080}, {Name: "data", Port: 9090, Protocol: corev1.ProtocolUDP}}}
	s.Create(j)
	j = s.awaitPhase("names", batch.JobRunning)

	pods := s.pods("names", "three", func(p []*corev1.Pod) bool { return len(p) == 3 })
	for i, want := range []struct{ name, role, rank string }{
		{"names-master-0", "master", "0"}, {"names-worker-0", "worker", "0"}, {"names-worker-1", "worker", "1"},
	} {
		p := pods[i]
		if p.Name != want.name || p.Spec.Hostname != want.name || p.Spec.Subdomain != "names" {
			t.Errorf("pod %s has hostname %s and subdomain %s, want %s and names", p.Name, p.Spec.Hostname, p.Spec.Subdomain, want.name)
		}
		if name := s.exec(s.Namespace, p.Name, "main", "cat /proc/sys/kernel/hostname"); name != want.name {
			t.Errorf("pod %s has the host name %q", p.Name, name)
		}
		labels := map[string]string{
			batch.LabelJobName: "names", batch.LabelJobKind: "GenericJob", batch.LabelComponent: "genericjob",
			batch.LabelReplicaType: want.role, batch.LabelReplicaRank: want.rank, batch.LabelReplicaAttempt: "0",
		}
		if want.role == "worker" {
			labels["app"] = "mine"
		}
		if !maps.Equal(p.Labels, labels) {
			t.Errorf("pod %s has labels %v, want %v", p.Name, p.Labels, labels)
		}
		if want.role == "worker" && (p.Annotations["note"] != "kept" || p.Annotations[batch.AnnotationRunMode] != string(batch.RunImmediate)) {
			t.Errorf("pod %s has annotations %v", p.Name, p.Annotations)
		}
		if p.Spec.RestartPolicy != corev1.RestartPolicyNever {
			t.Errorf("pod %s has restart policy %s", p.Name, p.Spec.RestartPolicy)
		}
		checkOwner(t, p, j)
	}
	s.checkService(j)
}

func checkOwner(t *testing.T, o client.Object, j *batch.GenericJob) {
	t.Helper()
	if !metav1.IsControlledBy(o, j) {
		t.Errorf("%T %s is not controlled by the job: %+v", o, o.GetName(), o.GetOwnerReferences())
	}
}

// checkService compares the Services of the namespace with the Service in the job's spec.
func (s *space) checkService(j *batch.GenericJob) {
	s.Helper()
	var services corev1.ServiceList
	if err := s.Client.List(s.Context(), &services, client.InNamespace(s.Namespace)); err != nil {
		s.Fatal(err)
	}
	if len(services.Items) != 1 {
		s.Fatalf("%d services, want 1", len(services.Items))
	}
	svc := &services.Items[0]
	if svc.Name != j.Name || svc.Spec.ClusterIP != corev1.ClusterIPNone || !svc.Spec.PublishNotReadyAddresses || !metav1.IsControlledBy(svc, j) {
		s.Errorf("service %s: %+v, owned by %v", svc.Name, svc.Spec, svc.OwnerReferences)
	}
	if len(svc.Spec.Ports) != len(j.Spec.Service.Ports) {
		s.Fatalf("ports %v, want %v", svc.Spec.Ports, j.Spec.Service.Ports)
	}
	for i, p := range svc.Spec.Ports {
		if want := j.Spec.Service.Ports[i]; p.Name != want.Name || p.Port != want.Port || want.Protocol != "" && p.Protocol != want.Protocol {
			s.Errorf("port %+v, want %+v", p, want)
		}
	}
}

// TestGenericJobHasNoServiceByDefault verifies that a GenericJob has a Service only if its spec has one.
func TestGenericJobHasNoServiceByDefault(t *testing.T) {
	s := newSpace(t)
	s.Create(s.newJob("alone", role("worker", 1, "exit 0")))
	s.awaitPhase("alone", batch.JobSucceeded)
	var services corev1.ServiceList
	if err := s.Client.List(t.Context(), &services, client.InNamespace(s.Namespace)); err != nil {
		t.Fatal(err)
	}
	if len(services.Items) != 0 {
		t.Errorf("there is a service: %v", services.Items)
	}
}

// TestReplicasResolveEachOthersNames verifies the names under which other pods can resolve a replica's address, even
// before the replica is ready.
func TestReplicasResolveEachOthersNames(t *testing.T) {
	s := newSpace(t)
	never := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"false"}}}}
	worker := role("worker", 2, gate.Idle)
	worker.Template.Spec.Containers[0].ReadinessProbe = never
	j := s.newJob("net", worker)
	j.Spec.Service = &batch.ServiceOption{Ports: []corev1.ServicePort{{Name: "http", Port: 8080}}}
	s.Create(j)
	neighbour := s.outsider(s.Namespace)
	stranger := s.outsider("default")
	s.awaitPhase("net", batch.JobRunning)
	address := s.podNow("net-worker-1").Status.PodIP
	for _, look := range []struct{ namespace, from, name string }{
		{s.Namespace, "net-worker-0", "net-worker-1"},
		{s.Namespace, "net-worker-1", "net-worker-1"},
		{s.Namespace, "net-worker-0", "net-worker-1.net"},
		{s.Namespace, neighbour, "net-worker-1.net"},
		{s.Namespace, neighbour, "net-worker-1.net." + s.Namespace},
		{"default", stranger, "net-worker-1.net." + s.Namespace + ".svc.cluster.local"},
	} {
		s.awaitAddresses(look.namespace, look.from, look.name, address)
	}
	s.awaitAddresses(s.Namespace, neighbour, "net", s.podNow("net-worker-0").Status.PodIP, address)
}

// awaitAddresses waits until a name that a process in the pod from resolves has exactly the wanted addresses. The name
// server observes pods with a short delay.
func (s *space) awaitAddresses(namespace, from, name string, want ...string) {
	s.Helper()
	slices.Sort(want)
	s.Await(fmt.Sprintf("from %s the name %s leads to %v", from, name, want), func() error {
		got := s.resolve(namespace, from, name)
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("it leads to %v", got)
		}
		return nil
	})
}

// outsider starts a pod that belongs to no job, waits until it runs, and returns its name. The pod is deleted when the
// test ends.
func (s *space) outsider(namespace string) string {
	s.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "outsider-", Namespace: namespace},
		Spec: role("x", 1, "exec sleep 1000000").Template.Spec}
	if err := s.Client.Create(s.Context(), p); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := s.Core.CoreV1().Pods(namespace).Delete(s.AfterTest(), p.Name, metav1.DeleteOptions{}); err != nil {
			s.Error(err)
		}
	})
	in := &space{Test: s.Beside(namespace)}
	in.pod(p.Name, "running", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	return p.Name
}

// resolve returns the IPv4 addresses to which a name resolves in a pod. It waits until the name resolves.
func (s *space) resolve(namespace, pod, name string) []string {
	s.Helper()
	out := s.exec(namespace, pod, "main", fmt.Sprintf("until getent ahostsv4 %s; do sleep 0.05; done", name))
	var addresses []string
	for _, line := range strings.Split(out, "\n") {
		if f := strings.Fields(line); len(f) > 1 && f[1] == "STREAM" {
			addresses = append(addresses, f[0])
		}
	}
	return addresses
}

// TestTooLongNameIsRefused verifies that a job is refused if the names of its pods would be too long, with a message
// that contains the limit and the length, and that a job whose pods have names of the greatest length runs.
func TestTooLongNameIsRefused(t *testing.T) {
	s := newSpace(t)
	err := s.Client.Create(t.Context(), s.newJob(strings.Repeat("x", 55), role("worker", 11, "exit 0")))
	if err == nil || !strings.Contains(err.Error(), "63") || !strings.Contains(err.Error(), "65") {
		t.Errorf("a pod's name of 65 characters: %v", err)
	}
	s.Create(s.newJob(strings.Repeat("x", 54), role("worker", 10, "exit 0")))
	s.awaitPhase(strings.Repeat("x", 54), batch.JobSucceeded)
}

// TestJobCreatesPodGroupBeforePods verifies that a job for the t9k-scheduler creates its PodGroup before its pods,
// which wait for that scheduler.
func TestJobCreatesPodGroupBeforePods(t *testing.T) {
	s := newSpace(t)
	j := s.newJob("gang", role("worker", 2, gate.Obey))
	j.Spec.Scheduler = &batch.SchedulePolicy{T9kScheduler: &batch.T9kScheduler{Queue: "research"}}
	s.Create(j)
	pods := s.pods("gang", "both", func(p []*corev1.Pod) bool { return len(p) == 2 })
	group := &scheduling.PodGroup{}
	if err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: "gang"}, group); err != nil {
		t.Fatal(err)
	}
	checkOwner(t, group, j)
	if group.Spec.MinMember != 2 || group.Spec.Queue != "research" {
		t.Errorf("the group: %+v", group.Spec)
	}
	for _, p := range pods {
		if p.Spec.SchedulerName != "t9k-scheduler" || p.CreationTimestamp.Before(&group.CreationTimestamp) {
			t.Errorf("pod %s has scheduler %s and was created at %v, its group at %v", p.Name, p.Spec.SchedulerName, p.CreationTimestamp, group.CreationTimestamp)
		}
	}
}
