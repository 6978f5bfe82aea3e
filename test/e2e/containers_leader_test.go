package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// takeover is the longest accepted time from the moment at which a leader is killed or frozen to the first action of
// its successor.
const takeover = 15 * time.Second

// acts holds, for each program with a leader, an example and a condition on the example's pods that holds only after
// the leader has acted. what describes the condition.
var acts = []struct {
	program, example, what string
	done                   func([]*corev1.Pod) bool
}{
	{"t9k-operator", "hello", "there are some", func(p []*corev1.Pod) bool { return len(p) > 0 }},
	{"t9k-scheduler", "gang", "one has a node", func(p []*corev1.Pod) bool { return len(p) == 4 && p[0].Spec.NodeName != "" }},
}

// outages holds the faults of a leader, by a word for its state. Each of them prevents the leader from acting until the
// test calls end.
var outages = map[string]func(c *containers, leader *corev1.Pod) (end func()){
	"killed": (*containers).keepKilled,
	"frozen": (*containers).keepFrozen,
}

// checkTakeovers runs a sub-test for each program and each outage of its leader.
func (c *containers) checkTakeovers() {
	for i := range acts {
		for how := range outages {
			c.Run(fmt.Sprintf("another %s acts when the leader is %s", acts[i].program, how), c.step(func(c *containers) { c.checkTakeover(i, how) }))
		}
	}
}

// checkTakeover creates a job while the leader of a program cannot act, and verifies that the other replica acts in
// time.
func (c *containers) checkTakeover(i int, how string) {
	act := acts[i]
	s := newSpaceOn(c.T, c.Plane)
	leader := c.awaitLeader(act.program)
	began := time.Now()
	end := outages[how](c, leader)
	s.example(act.example)
	s.pods(act.example, act.what, act.done)
	took := time.Since(began)
	successor := podOf(c.leader(act.program))
	end()
	c.Logf("%s was %s; %s acted after %s", leader.Name, how, successor, took.Round(100*time.Millisecond))
	if successor == leader.Name || !strings.HasPrefix(successor, act.program+"-") {
		c.Errorf("pod %q acted, want the other replica", successor)
	}
	if took > takeover {
		c.Errorf("it acted after %s, want at most %s", took, takeover)
	}
	s.awaitPhase(act.example, batch.JobSucceeded)
}

// leader returns the identity of a lease's holder, which consists of the name of its pod and a random part. It returns
// an empty string if the lease has no holder.
func (c *containers) leader(lease string) string {
	c.Helper()
	l := &coordinationv1.Lease{}
	c.system().Must(c.system().Get(lease, l))
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// podOf returns the name of the pod in a leader's identity.
func podOf(identity string) string {
	name, _, _ := strings.Cut(identity, "_")
	return name
}

// awaitLeader waits until all replicas of a program are ready and one of them leads that is not being deleted, and
// returns the leader's pod.
func (c *containers) awaitLeader(program string) *corev1.Pod {
	c.Helper()
	s, leader := c.system(), &corev1.Pod{}
	s.Await("all replicas are ready and one leads", func() error {
		d := &appsv1.Deployment{}
		if err := s.Get(program, d); err != nil {
			return err
		}
		if d.Status.ReadyReplicas != *d.Spec.Replicas || d.Status.Replicas != *d.Spec.Replicas {
			return fmt.Errorf("%+v", d.Status)
		}
		if err := s.Get(podOf(c.leader(program)), leader); err != nil {
			return err
		}
		if leader.DeletionTimestamp != nil { // a rolling upgrade ends while an old leader still terminates
			return fmt.Errorf("the leader %s is being deleted", leader.Name)
		}
		return nil
	})
	return leader
}

// keepKilled kills the process of a leader with SIGKILL, and again whenever the kubelet has restarted it, because the
// restarted process could become the leader again. end stops the killing.
func (c *containers) keepKilled(leader *corev1.Pod) (end func()) {
	c.Helper()
	id := leader.Status.ContainerStatuses[0].ContainerID
	c.daemon.signal(c.T, id, "SIGKILL")
	ctx, cancel := context.WithCancel(c.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			p, err := c.Core.CoreV1().Pods(leader.Namespace).Get(ctx, leader.Name, metav1.GetOptions{})
			if err == nil && p.Status.ContainerStatuses[0].State.Running != nil && p.Status.ContainerStatuses[0].ContainerID != id {
				id = p.Status.ContainerStatuses[0].ContainerID
				_ = c.daemon.trySignal(id, "SIGKILL") // the process may already have exited
			}
			return false, nil
		})
	}()
	return func() { cancel(); <-ended }
}

// keepFrozen freezes the process of a leader with SIGSTOP. end continues the process and waits until the kubelet has
// restarted it: the process exits when it finds that another replica leads.
func (c *containers) keepFrozen(leader *corev1.Pod) (end func()) {
	c.Helper()
	before := leader.Status.ContainerStatuses[0]
	c.daemon.signal(c.T, before.ContainerID, "SIGSTOP")
	return func() {
		c.daemon.signal(c.T, before.ContainerID, "SIGCONT")
		c.system().Await("the old leader has ended", func() error {
			p := &corev1.Pod{}
			if err := c.system().Get(leader.Name, p); err != nil {
				return err
			}
			if p.Status.ContainerStatuses[0].RestartCount == before.RestartCount {
				return errors.New("its container has not been started again")
			}
			return nil
		})
	}
}
