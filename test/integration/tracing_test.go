package integration

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/collector"
	"tensorstack.dev/batch/internal/testing/testenv"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
	"tensorstack.dev/batch/test/kit/program"
	"tensorstack.dev/batch/test/kit/watch"
)

// TestTraceOfAGang runs a gang job that waits for quota, from its creation to its end. It verifies that the operator
// and the scheduler send one trace of the job's start, with each span once, although the operator is killed while the
// job waits and again while it runs. A group without a job has a trace of its own.
func TestTraceOfAGang(t *testing.T) {
	w := newWorld(t)
	c := collector.Start(t)
	tracing := "tracing: {endpoint: '" + c.Address + "'}"
	operator := startOperator(t, w.Env.Kubeconfig, tracing)
	scheduler := w.startSchedulerWith(tracing)
	w.paperNodes("paper-0")
	q := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: w.paperQueue("traced", 0)}}
	quota := func(cpu string) {
		w.Update(q, func() { q.Spec.Quota.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)} })
	}
	quota("2")
	j := jobs.New("gang", jobs.Role("w", 3, kubelet.RunBound))
	j.Spec.Scheduler = &batch.SchedulePolicy{T9kScheduler: &batch.T9kScheduler{Queue: "traced"}}
	j.Spec.ReplicaSpecs[0].Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	w.Create(j)
	w.Await("the gang has a PodGroup", func() error { return w.Get("gang", &scheduling.PodGroup{}) })
	w.Await("the gang waits", func() error {
		return w.checkGroup("gang", metav1.ConditionFalse, scheduling.ReasonImpossible)
	})
	last := w.lastWait("gang")
	operator.Kill()
	operator = startOperator(t, w.Env.Kubeconfig, tracing)
	quota("4")
	w.awaitPhase("gang", batch.JobRunning)
	waited := <-last
	trace := w.awaitTrace(c, "gang", 4)
	w.gangOf("bare", "traced", 1, "1")
	w.Await("the trace of the group without a job has arrived", func() error {
		for _, s := range c.Spans() {
			if s.Attributes["t9k.podgroup.name"] == "bare" && s.Name == "schedule pods" && s.Parent == "" && s.Trace != trace {
				return nil
			}
		}
		return fmt.Errorf("the spans are %+v", c.Spans())
	})
	operator.Kill()
	operator = startOperator(t, w.Env.Kubeconfig, tracing)
	for i := range 3 {
		w.finish(fmt.Sprintf("gang-w-%d", i), 0)
	}
	w.awaitPhase("gang", batch.JobSucceeded)
	for _, p := range []*program.Program{operator, scheduler} { // they send their last spans when they exit
		p.Signal(syscall.SIGTERM)
		<-p.Ended()
	}

	all := ofTrace(c, trace)
	var names []string
	for _, s := range all {
		names = append(names, s.Service+" "+s.Name)
	}
	slices.Sort(names)
	if got, want := strings.Join(names, ", "), "t9k-operator create pods, t9k-operator start job, t9k-operator start pods, t9k-scheduler schedule pods"; got != want {
		t.Fatalf("the spans are %s, want %s", got, want)
	}
	root := all[slices.IndexFunc(all, func(s collector.Span) bool { return s.Name == "start job" })]
	for key, want := range map[string]any{"k8s.namespace.name": w.Namespace, "t9k.job.kind": "GenericJob", "t9k.job.name": "gang", "t9k.job.uid": string(j.UID),
		"t9k.job.replicas": int64(3), "t9k.job.outcome": "Running", "t9k.queue.name": "traced"} {
		if root.Attributes[key] != want {
			t.Errorf("%s of the root is %v, want %v", key, root.Attributes[key], want)
		}
	}
	if running := jobs.Condition(w.job("gang"), batch.JobRunningCondition); !root.Start.Equal(j.CreationTimestamp.Time) || root.End.After(running.LastTransitionTime.Time) || root.Parent != "" || root.Failure != "" {
		t.Errorf("the root is %+v; the job was created at %s, and its condition Running changed last at %s", root, j.CreationTimestamp, running.LastTransitionTime)
	}
	for _, s := range all {
		if s.ID != root.ID && (s.Parent != root.ID || s.Start.Before(root.Start) || s.End.After(root.End) || s.End.Before(s.Start)) {
			t.Errorf("span %+v is not in %+v", s, root)
		}
		if s.Name == "schedule pods" && (s.Attributes["t9k.podgroup.wait_reason"] != waited || s.Attributes["t9k.podgroup.pods"] != int64(3)) {
			t.Errorf("the attributes of the scheduler's span are %v, and it waited last for the reason %q", s.Attributes, waited)
		}
	}
}

// TestCollectorMayBeAway runs jobs while no collector receives spans, and another job with a collector. It verifies
// that the operator shuts down cleanly in both cases, that it logs lost spans at most once, and that it sends its last
// spans when it exits.
func TestCollectorMayBeAway(t *testing.T) {
	w := newWorld(t)
	operator := startOperator(t, w.Env.Kubeconfig, "tracing: {endpoint: '"+freeAddress(t)+"'}")
	for i := range 5 {
		w.Create(jobs.New(fmt.Sprint("away-", i), jobs.Role("w", 2, kubelet.Exit, "0")))
	}
	for i := range 5 {
		w.awaitPhase(fmt.Sprint("away-", i), batch.JobSucceeded)
	}
	operator.Signal(syscall.SIGTERM)
	if code := operator.ExitCode(); code != 0 {
		t.Errorf("the operator exits with code %d", code)
	}
	if n := strings.Count(operator.Log.String(), "Cannot export spans"); n > 1 {
		t.Errorf("%d lines of the log are about lost spans", n)
	}

	c := collector.Start(t)
	operator = startOperator(t, w.Env.Kubeconfig, "tracing: {endpoint: '"+c.Address+"'}")
	w.Create(jobs.New("fails", jobs.Role("w", 1, kubelet.Exit, "3")))
	w.awaitPhase("fails", batch.JobFailed)
	operator.Signal(syscall.SIGTERM) // before the operator would send its batch of spans
	if code := operator.ExitCode(); code != 0 {
		t.Errorf("the operator exits with code %d", code)
	}
	roots := slices.DeleteFunc(c.Spans(), func(s collector.Span) bool { return s.Name != "start job" })
	if len(roots) != 1 || roots[0].Attributes["t9k.job.name"] != "fails" {
		t.Errorf("the traces are %+v", roots)
	}
}

// startSchedulerWith starts a scheduler with settings of its plugin.
func (w *world) startSchedulerWith(settings string) *program.Program {
	w.Helper()
	text, err := local.SchedulerSettings([]string{scheduling.SchedulerName}, settings)
	w.Must(err)
	file := filepath.Join(w.TempDir(), "scheduler.yaml")
	w.Must(os.WriteFile(file, text, 0o600))
	binary, err := testenv.Binary()
	w.Must(err)
	_, port, err := net.SplitHostPort(freeAddress(w.T))
	w.Must(err)
	p, err := program.Start(binary, []string{"kube-scheduler", "--config=" + file, "--kubeconfig=" + w.Env.Kubeconfig, "--authentication-kubeconfig=" + w.Env.Kubeconfig,
		"--authorization-kubeconfig=" + w.Env.Kubeconfig, "--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=" + port}, nil)
	w.Must(err)
	p.EndWith(w)
	return p
}

// lastWait watches a group. Once the group is scheduled, the channel receives the last reason for which it waited.
func (w *world) lastWait(group string) <-chan string {
	w.Helper()
	last := make(chan string, 1)
	reason := ""
	w.Watch(&scheduling.PodGroupList{}, func(all []client.Object) bool {
		for _, g := range watch.Typed[*scheduling.PodGroup](all) {
			for _, c := range g.Status.Conditions {
				switch {
				case c.Type != scheduling.GroupScheduled:
				case c.Status == metav1.ConditionTrue:
					last <- reason
					return true
				default:
					reason = c.Reason
				}
			}
		}
		return false
	}, watch.Named(group))
	return last
}

// awaitTrace waits until n spans of the start of a job have arrived, and returns the identifier of their trace.
func (w *world) awaitTrace(c *collector.Collector, job string, n int) string {
	w.Helper()
	trace := ""
	w.Await(fmt.Sprintf("%d spans of job %s have arrived", n, job), func() error {
		all := c.Spans()
		i := slices.IndexFunc(all, func(s collector.Span) bool { return s.Attributes["t9k.job.name"] == job })
		if i < 0 {
			return fmt.Errorf("%d spans of others have", len(all))
		}
		trace = all[i].Trace
		if got := len(ofTrace(c, trace)); got < n {
			return fmt.Errorf("%d have", got)
		}
		return nil
	})
	return trace
}

// ofTrace returns the spans of a trace that have arrived so far.
func ofTrace(c *collector.Collector, trace string) []collector.Span {
	return slices.DeleteFunc(c.Spans(), func(s collector.Span) bool { return s.Trace != trace })
}
