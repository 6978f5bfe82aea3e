package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// gateDir is where the containers see the gate.
const gateDir = "/gate"

// obey is a script that notes each start of the replica at the gate, waits for the test's order there and ends with the
// exit code that it holds. While it waits it takes no processor time.
const obey = `echo started >> /gate/$HOSTNAME.starts; read code < /gate/$HOSTNAME; echo "ending with $code"; exit $code`

// idle is a script that never ends by itself.
const idle = `echo started >> /gate/$HOSTNAME.starts; exec sleep 1000000`

// order makes a replica that runs obey end with an exit code. It waits until the replica listens.
func (s *space) order(replica string, code int) {
	s.t.Helper()
	path := s.file(replica)
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
		if err == nil {
			_, err = fmt.Fprintln(f, code)
			f.Close()
			if err == nil {
				return
			}
		}
		// Nobody reads yet, or whoever did has just been killed.
		if !errors.Is(err, unix.ENXIO) && !errors.Is(err, unix.EPIPE) {
			s.t.Fatal(err)
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("replica %s takes no order: %v\n%s", replica, err, s.dump())
		}
	}
}

// orders makes a replica end several times, each time when it has started again.
func (s *space) orders(replica string, codes ...int) {
	s.t.Helper()
	for i, c := range codes {
		s.awaitStarts(replica, i+1)
		s.order(replica, c)
	}
}

// starts is the number of times that the processes of a replica have started, by their own account.
func (s *space) starts(replica string) int {
	return strings.Count(s.written(replica+".starts"), "started")
}

// awaitStarts waits until a replica has started for the n-th time.
func (s *space) awaitStarts(replica string, n int) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); s.starts(replica) < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("replica %s has started %d times, want %d\n%s", replica, s.starts(replica), n, s.dump())
		}
	}
}

// newJob makes a job of some roles, with a gate for each replica.
func (s *space) newJob(name string, roles ...batch.ReplicaSpec) *batch.GenericJob {
	s.t.Helper()
	j := &batch.GenericJob{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.ns}}
	for _, r := range roles {
		r.Template.Spec.Volumes = append(r.Template.Spec.Volumes, corev1.Volume{Name: "gate",
			VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: s.gate}}})
		for i := range r.Template.Spec.Containers {
			atGate(&r.Template.Spec.Containers[i])
		}
		for i := range r.Template.Spec.InitContainers {
			atGate(&r.Template.Spec.InitContainers[i])
		}
		j.Spec.ReplicaSpecs = append(j.Spec.ReplicaSpecs, r)
		for rank := range *r.Replicas {
			s.fifo(fmt.Sprintf("%s-%s-%d", name, r.Type, rank))
		}
	}
	return j
}

// fifo makes a pipe at the gate through which orders come.
func (s *space) fifo(name string) {
	s.t.Helper()
	if err := unix.Mkfifo(s.file(name), 0o666); err != nil && !errors.Is(err, unix.EEXIST) {
		s.t.Fatal(err)
	}
}

func atGate(c *corev1.Container) {
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "gate", MountPath: gateDir})
}

// role describes replicas that run a shell script.
func role(name string, replicas int32, script string) batch.ReplicaSpec {
	grace := int64(1)
	return batch.ReplicaSpec{Type: name, Replicas: &replicas, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		TerminationGracePeriodSeconds: &grace,
		Containers:                    []corev1.Container{container("main", script)},
	}}}
}

func container(name, script string) corev1.Container {
	return corev1.Container{Name: name, Image: "busybox", Command: []string{"sh", "-c", script}}
}

// restarting sets a role's restart policy; limit -1 stands for none.
func restarting(r batch.ReplicaSpec, policy batch.RestartPolicyType, limit int32) batch.ReplicaSpec {
	r.RestartPolicy = &batch.RestartPolicy{Policy: policy}
	if limit >= 0 {
		r.RestartPolicy.Limit = &limit
	}
	return r
}

// checkNothingCreated looks for pods and services of a job.
func (s *space) checkNothingCreated(job string) {
	s.t.Helper()
	for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.ServiceList{}} {
		if err := s.client.List(s.t.Context(), list, client.InNamespace(s.ns), client.MatchingLabels{batch.LabelJobName: job}); err != nil {
			s.t.Fatal(err)
		}
		if n := meta.LenList(list); n != 0 {
			s.t.Errorf("%d objects in %T", n, list)
		}
	}
}

// fence runs a small job to its end, so that the controller has seen what happened before.
func (s *space) fence() {
	s.t.Helper()
	s.fences++
	name := fmt.Sprintf("fence-%d", s.fences)
	s.create(s.newJob(name, role("x", 1, "exit 0")))
	s.awaitPhase(name, batch.JobSucceeded)
}

func sortBy[T any](all []T, key func(T) string) {
	slices.SortFunc(all, func(a, b T) int { return strings.Compare(key(a), key(b)) })
}

// afterTest is a context for what is done when the test has ended.
func afterTest(t testing.TB) context.Context { return context.WithoutCancel(t.Context()) }
