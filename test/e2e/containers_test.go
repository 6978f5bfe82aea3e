package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/config"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/testenv"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/namespace"
	"tensorstack.dev/batch/test/kit/plane"
)

// TestChartRunsJobsInContainers verifies an installation of the chart with the images of `make images` on a node that
// runs containers, and runs jobs there. The steps share one cluster, because an installation takes half a minute.
func TestChartRunsJobsInContainers(t *testing.T) {
	c := newContainers(t)
	began := time.Now()
	c.install()
	t.Logf("installed in %s", time.Since(began).Round(time.Second))
	t.Run("the programs run as restricted pods", c.step((*containers).checkPrograms))
	t.Run("network policies hold", c.step((*containers).checkNetworkPolicies))
	t.Run("examples", c.step((*containers).checkExamples))
	t.Run("a gang and examples go on while kubelet and containerd restart", c.step((*containers).checkRestarts))
	t.Run("the webhook answers throughout a rolling upgrade", c.step((*containers).checkRollingUpgrade))
	c.checkTakeovers()
}

// containers is a cluster whose pods run in containers of a containerd.
type containers struct {
	*testing.T
	*plane.Plane
	daemon *containerd
	helm   func(args ...string)
}

// newContainers starts a containerd that has all images, and a Kubernetes cluster without TensorStack Batch on it.
// Before it starts the cluster, it tests t9k local on the same containerd, because a containerd serves only one kubelet
// at a time.
func newContainers(t *testing.T) *containers {
	tools := requireContainers(t)
	d := startContainerd(t, tools)
	d.importImages(t)
	t.Run("t9k local runs a cluster on containerd", d.checkCommandLine)
	p := plane.Start(t, testenv.Options{Components: local.BareComponents(), Containerd: d.socket})
	c := &containers{T: t, Plane: p, daemon: d}
	c.helm = func(args ...string) { tools.runHelm(t, p.Env.Kubeconfig, args...) }
	return c
}

// step returns a sub-test that runs check on the cluster.
func (c *containers) step(check func(*containers)) func(*testing.T) {
	return func(t *testing.T) {
		own := *c
		own.T = t
		check(&own)
	}
}

// system returns the namespace in which the chart is installed.
func (c *containers) system() *namespace.Test {
	return &namespace.Test{T: c.T, Plane: c.Plane, Namespace: config.Namespace}
}

// install installs the chart in a namespace that enforces the Pod Security level restricted, and applies pullPolicy.
func (c *containers) install() {
	c.Helper()
	s := c.system()
	s.Must(c.Client.Create(c.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: config.Namespace,
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}))
	c.helm("install", "t9k-batch", chartDir, "--namespace", config.Namespace, "--wait", "--timeout", "3m",
		"--values", filepath.Join(c.daemon.tools.images, "values.yaml"), "--values", chartValues)
	applyPullPolicy(s.Beside(metav1.NamespaceDefault))
}

// checkPrograms verifies that each program has two ready pods, whose containers have not restarted, that the default
// queue exists, and that the webhook answers.
func (c *containers) checkPrograms() {
	s := c.system()
	count := map[string]int{}
	for _, p := range s.Pods() {
		for _, state := range p.Status.ContainerStatuses {
			if !state.Ready || state.RestartCount > 0 || !strings.HasPrefix(state.ContainerID, "containerd://") {
				c.Errorf("%s: container %s is ready: %t, with %d restarts: %+v", p.Name, state.ContainerID, state.Ready, state.RestartCount, state.LastTerminationState)
			}
		}
		count[p.Labels["app.kubernetes.io/component"]]++
	}
	if count["operator"] != 2 || count["scheduler"] != 2 || count["console"] != 2 || len(count) != 3 {
		c.Errorf("pods by program: %v", count)
	}
	s.Must(c.Client.Get(c.Context(), types.NamespacedName{Name: scheduling.DefaultQueue}, &scheduling.Queue{}))
	c.checkWebhookAnswers()
}

// checkWebhookAnswers verifies, with a dry run, that the webhook sets a default in a new job. The creation alone would
// not show this, because the API server also accepts jobs if the webhook does not answer.
func (c *containers) checkWebhookAnswers() {
	c.Helper()
	if err := c.createDefaulted(); err != nil {
		c.Error(err)
	}
}

// createDefaulted creates a job as a dry run, and returns an error if that fails or if the job lacks the default that
// the webhook sets.
func (c *containers) createDefaulted() error {
	yes, low, high := true, int32(2), int32(4)
	j := &batch.PyTorchTrainingJob{ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: metav1.NamespaceDefault}}
	role := batch.TrainingReplicaSpec{Type: "worker", Template: jobs.Role("worker", 1, "true").Template}
	j.Spec.ReplicaSpecs = []batch.PyTorchReplicaSpec{{TrainingReplicaSpec: role}}
	j.Spec.ReplicaSpecs[0].Template.Spec.Containers[0].Name = "pytorch"
	j.Spec.TorchrunConfig = &batch.TorchrunConfig{Enabled: &yes}
	j.Spec.Elastic = &batch.ElasticConfig{Enabled: &yes, MinReplicas: &low, MaxReplicas: &high}
	if err := c.Client.Create(c.Context(), j, client.DryRunAll); err != nil {
		return err
	}
	if n := j.Spec.Elastic.ExpectedReplicas; n == nil || *n != low {
		return errors.New("the webhook has not set elastic.expectedReplicas")
	}
	return nil
}

// checkExamples runs the tests in examplesWithoutTorch. TestExamplesDoWhatTheyDescribe does the same where containers
// are processes.
func (c *containers) checkExamples() {
	for name, run := range examplesWithoutTorch {
		c.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpaceOn(t, c.Plane)
			if !createdByTest[name] {
				s.example(name)
			}
			run(s)
		})
	}
}

// untilTold is the command of a replica that runs until tellToEnd is called.
var untilTold = []string{"sh", "-c", "until [ -e /tmp/end ]; do sleep 0.2; done"}

func tellToEnd(s *space, pod string) { s.exec(s.Namespace, pod, "main", "touch /tmp/end") }

// checkRestarts kills the kubelet and containerd while a job, a gang in a queue and two examples run. It verifies that
// their containers continue, that the jobs and examples succeed without a charged restart, and that no container of
// this repository's programs was replaced, unless it lost its lease.
func (c *containers) checkRestarts() {
	s := newSpaceOn(c.T, c.Plane)
	role := jobs.Role("worker", 2, untilTold...)
	role.Template.Spec.Containers[0].Image = "busybox"
	s.Create(jobs.New("long", role))
	gang := jobs.New("together", role)
	gang.Spec.Scheduler = inQueue(scheduling.DefaultQueue)
	s.Create(gang)
	examples := map[string]func(*space){"debug": exampleDebug, "pause": examplePause}
	names := []string{"long", "together"}
	for name := range examples {
		s.example(name)
		names = append(names, name)
	}
	for _, name := range names {
		s.awaitPhase(name, batch.JobRunning)
	}
	before, system := containerIDs(s.Test), containerIDs(c.system())
	s.Must(c.Env.Kill(local.Kubelet))
	c.daemon.restart(c.T)
	c.AwaitReady(c.T)
	for _, p := range s.Pods() {
		s.Await("the kubelet knows pod "+p.Name+" again", func() error {
			return s.Core.CoreV1().Pods(s.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{}).Do(s.Context()).Error()
		})
	}
	if after := containerIDs(s.Test); after != before {
		c.Errorf("the containers of the jobs were\n%s\nand are\n%s", before, after)
	}
	for _, name := range []string{"long", "together"} {
		for rank := range 2 {
			tellToEnd(s, fmt.Sprintf("%s-worker-%d", name, rank))
		}
		j := s.awaitPhase(name, batch.JobSucceeded)
		for rank := range 2 {
			if r := jobs.Replica(j, fmt.Sprintf("%s-worker-%d", name, rank)); r.RestartCount != 0 || r.Attempt != 0 {
				c.Errorf("%s was charged %d restarts, in attempt %d", r.Name, r.RestartCount, r.Attempt)
			}
		}
	}
	for _, run := range examples {
		run(s)
	}
	for _, p := range c.system().Pods() {
		for _, state := range p.Status.ContainerStatuses {
			if !strings.Contains(system, p.Name+" "+state.ContainerID) {
				c.checkLostLease(&p, state)
			}
		}
	}
}

// checkLostLease fails the test unless the log of the previous container of pod p says that it lost its lease. This can
// happen to the operator and the scheduler on a slow machine.
func (c *containers) checkLostLease(p *corev1.Pod, state corev1.ContainerStatus) {
	c.Helper()
	system := c.system()
	text, err := system.Core.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{Previous: true}).DoRaw(system.Context())
	system.Must(err)
	if !strings.Contains(strings.ToLower(strings.ReplaceAll(string(text), " ", "")), "leaderelectionlost") {
		c.Errorf("the container of pod %s was replaced; the one before: %+v\n%s", p.Name, state.LastTerminationState, text)
	}
}

// creations is the minimum number of jobs that checkRollingUpgrade creates as dry runs.
const creations = 1000

// checkRollingUpgrade verifies that jobs can be created, with the webhook's defaults, while Helm replaces the
// operators.
func (c *containers) checkRollingUpgrade() {
	old := containerIDs(c.system())
	var rolled atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer rolled.Store(true)
		c.helm("upgrade", "t9k-batch", chartDir, "--namespace", config.Namespace, "--reset-then-reuse-values", "--wait", "--timeout", "3m",
			"--set-string", "operator.podAnnotations.rolled=once")
	}()
	created, failures := 0, []string{}
	longest := time.Duration(0)
	for ; created < creations || !rolled.Load(); created++ {
		began := time.Now()
		if err := c.createDefaulted(); err != nil {
			failures = append(failures, err.Error())
		}
		longest = max(longest, time.Since(began))
	}
	<-ended
	if containerIDs(c.system()) == old {
		c.Error("no operator was replaced")
	}
	c.Logf("%d jobs created while the operator rolled, %d refused, the slowest in %s", created, len(failures), longest.Round(time.Millisecond))
	if len(failures) > 0 {
		c.Errorf("%d of %d creations failed, the first one: %s", len(failures), created, failures[0])
	}
}

// containerIDs lists the containers of all pods in a namespace, sorted, with one line "POD ID" for each.
func containerIDs(s *namespace.Test) string {
	s.Helper()
	var ids []string
	for _, p := range s.Pods() {
		for _, state := range p.Status.ContainerStatuses {
			ids = append(ids, p.Name+" "+state.ContainerID)
		}
	}
	slices.Sort(ids)
	return strings.Join(ids, "\n")
}
