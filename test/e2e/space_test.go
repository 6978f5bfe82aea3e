package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// space is a namespace that belongs to one test.
type space struct {
	*cluster
	t  testing.TB
	ns string
	// gate is a directory of the machine that every pod of the test sees as gateDir.
	gate    string
	history *history
	fences  int
}

// newSpace makes a namespace on the shared cluster and lets the test run side by side with others.
func newSpace(t *testing.T) *space {
	t.Helper()
	requireCluster(t)
	t.Parallel()
	c, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return c.space(t)
}

// space makes a namespace that goes with the test.
func (c *cluster) space(t testing.TB) *space {
	t.Helper()
	s := &space{cluster: c, t: t, gate: t.TempDir()}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: namespaceOf(t.Name())}}
	if err := c.client.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	s.ns = ns.Name
	t.Cleanup(func() {
		// The test's own context has ended; nobody waits for the end of the namespace.
		if err := c.client.Delete(afterTest(t), ns); err != nil {
			t.Log("deleting the namespace: ", err)
		}
	})
	// Without these the first pods would be refused, or held up.
	await(s, "the default service account", &corev1.ServiceAccountList{}, func(a []*corev1.ServiceAccount) bool { return len(a) == 1 }, named("default"))
	await(s, "the root certificate", &corev1.ConfigMapList{}, func(a []*corev1.ConfigMap) bool { return len(a) == 1 }, named("kube-root-ca.crt"))
	s.history = s.record()
	return s
}

// namespaceOf makes the beginning of a namespace's name out of a test's.
func namespaceOf(test string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(test))
	return name[:min(len(name), 40)] + "-"
}

// create creates an object in the space.
func (s *space) create(o client.Object) {
	s.t.Helper()
	o.SetNamespace(s.ns)
	if err := s.client.Create(s.t.Context(), o); err != nil {
		s.t.Fatal(err)
	}
}

// edit changes a live job.
func (s *space) edit(name string, change func(*batch.GenericJob)) {
	s.t.Helper()
	if err := s.tryEdit(name, change); err != nil {
		s.t.Fatal(err)
	}
}

// tryEdit sends the difference that change makes, or returns why it was refused.
func (s *space) tryEdit(name string, change func(*batch.GenericJob)) error {
	s.t.Helper()
	j := s.job(name)
	base := j.DeepCopy()
	change(j)
	return s.client.Patch(s.t.Context(), j, client.MergeFrom(base))
}

// job reads a job.
func (s *space) job(name string) *batch.GenericJob {
	s.t.Helper()
	j := &batch.GenericJob{}
	if err := s.client.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, j); err != nil {
		s.t.Fatal(err)
	}
	return j
}

// awaitJob waits until cond holds of a job.
func (s *space) awaitJob(name, what string, cond func(*batch.GenericJob) bool) *batch.GenericJob {
	s.t.Helper()
	return await(s, "job "+name+": "+what, &batch.GenericJobList{}, func(jobs []*batch.GenericJob) bool {
		return len(jobs) == 1 && cond(jobs[0])
	}, named(name))[0]
}

// awaitPhase waits until a job has a phase.
func (s *space) awaitPhase(name string, phase batch.JobPhase) *batch.GenericJob {
	s.t.Helper()
	j := s.awaitJob(name, "phase "+string(phase), func(j *batch.GenericJob) bool {
		return j.Status.Phase == phase || over(j)
	})
	if j.Status.Phase != phase {
		s.t.Fatalf("job %s is %s, want %s\n%s", name, j.Status.Phase, phase, s.dump())
	}
	return j
}

// pods waits until cond holds of the pods of a job, ordered by name.
func (s *space) pods(job, what string, cond func([]*corev1.Pod) bool) []*corev1.Pod {
	s.t.Helper()
	return await(s, "pods of "+job+": "+what, &corev1.PodList{}, cond, client.MatchingLabels{batch.LabelJobName: job})
}

// pod waits until cond holds of a pod.
func (s *space) pod(name, what string, cond func(*corev1.Pod) bool) *corev1.Pod {
	s.t.Helper()
	return await(s, "pod "+name+": "+what, &corev1.PodList{}, func(pods []*corev1.Pod) bool {
		return len(pods) == 1 && cond(pods[0])
	}, named(name))[0]
}

// podNow reads a pod.
func (s *space) podNow(name string) *corev1.Pod {
	s.t.Helper()
	p := &corev1.Pod{}
	if err := s.client.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, p); err != nil {
		s.t.Fatal(err)
	}
	return p
}

// log reads what a container has written.
func (s *space) log(pod, container string) string {
	s.t.Helper()
	data, err := s.core.CoreV1().Pods(s.ns).GetLogs(pod, &corev1.PodLogOptions{Container: container}).DoRaw(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return string(data)
}

// occurrences counts how often an event of a reason was emitted about an object.
func occurrences(events []*eventsv1.Event, object, reason string) int {
	n := 0
	for _, e := range events {
		if e.Regarding.Name != object || e.Reason != reason {
			continue
		}
		n++
		if e.Series != nil {
			n += int(e.Series.Count) - 1
		}
	}
	return n
}

// events reads all events of the namespace.
func (s *space) events() []*eventsv1.Event {
	s.t.Helper()
	var list eventsv1.EventList
	if err := s.client.List(s.t.Context(), &list, client.InNamespace(s.ns)); err != nil {
		s.t.Fatal(err)
	}
	out := make([]*eventsv1.Event, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out
}

// awaitEvent waits for an event about an object whose note contains text, and returns it.
func (s *space) awaitEvent(object string, reason batch.Reason, text string) *eventsv1.Event {
	s.t.Helper()
	var found *eventsv1.Event
	await(s, fmt.Sprintf("an event %s about %s with %q", reason, object, text), &eventsv1.EventList{}, func(events []*eventsv1.Event) bool {
		for _, e := range events {
			if e.Regarding.Name == object && e.Reason == string(reason) && strings.Contains(e.Note, text) {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

// dump describes the namespace for a message.
func (s *space) dump() string {
	var b strings.Builder
	ctx := afterTest(s.t)
	in := client.InNamespace(s.ns)
	var pods corev1.PodList
	var events eventsv1.EventList
	for _, list := range []client.ObjectList{&pods, &events} {
		if err := s.client.List(ctx, list, in); err != nil {
			fmt.Fprintln(&b, err)
		}
	}
	jobs, err := s.jobsNow(ctx)
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	for _, j := range jobs {
		text, _ := yaml.Marshal(statusOf(j)) // plain data always has a YAML form
		fmt.Fprintf(&b, "--- job %s\n%s", j.GetName(), text)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		text, _ := yaml.Marshal(p.Status.ContainerStatuses)
		fmt.Fprintf(&b, "--- pod %s: %s on %q, %s, deletion asked for: %v\n%s", p.Name, p.Status.Phase, p.Spec.NodeName, p.Status.Reason, p.DeletionTimestamp, text)
	}
	for i := range events.Items {
		e := &events.Items[i]
		fmt.Fprintf(&b, "--- event %s about %s: %s\n", e.Reason, e.Regarding.Name, e.Note)
	}
	return b.String()
}

// file is the path of a file at the gate.
func (s *space) file(name string) string { return filepath.Join(s.gate, name) }

// written reads a file that a process of the test has written at the gate; empty where there is none yet.
func (s *space) written(name string) string {
	s.t.Helper()
	data, err := os.ReadFile(s.file(name))
	if err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	return string(data)
}
