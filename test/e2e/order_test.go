package e2e

import (
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/jobs"
)

// order makes a replica that runs gate.Obey exit with a code. It waits until the replica accepts the order.
func (s *space) order(replica string, code int) {
	s.Helper()
	s.Await("replica "+replica+" accepts an order", func() error { return s.Order(replica, code) })
}

// orderAll makes replicas that run gate.Obey exit with a code at the same moment.
func (s *space) orderAll(code int, replicas ...string) {
	s.Helper()
	var pipes []*os.File
	for _, r := range replicas {
		s.Await("replica "+r+" accepts an order", func() error {
			pipe, err := s.Open(r)
			if err == nil {
				pipes = append(pipes, pipe)
			}
			return err
		})
	}
	for _, pipe := range pipes {
		_, err := fmt.Fprintln(pipe, code)
		s.Must(err)
	}
	for _, pipe := range pipes {
		pipe.Close()
	}
}

// orders makes a replica that runs gate.Obey exit with each code in turn. It waits for the n-th start of the replica
// before it gives the n-th order.
func (s *space) orders(replica string, codes ...int) {
	s.Helper()
	for i, c := range codes {
		s.awaitStarts(replica, i+1)
		s.order(replica, c)
	}
}

// starts returns how often the processes of a replica have started, as they recorded it.
func (s *space) starts(replica string) int {
	s.Helper()
	n, err := s.Starts(replica)
	s.Must(err)
	return n
}

// awaitStarts waits until a replica has started for the n-th time.
func (s *space) awaitStarts(replica string, n int) {
	s.Helper()
	s.Await(fmt.Sprintf("replica %s has started %d times", replica, n), func() error {
		if got := s.starts(replica); got < n {
			return fmt.Errorf("it has started %d times", got)
		}
		return nil
	})
}

// checkStarts waits until each replica has started the expected number of times, and verifies that it has not started
// more often.
func (s *space) checkStarts(want map[string]int) {
	s.Helper()
	for replica, n := range want {
		s.awaitStarts(replica, n)
		if got := s.starts(replica); got != n {
			s.Errorf("%s has started %d times, want %d\n%s", replica, got, n, s.Dump())
		}
	}
}

// newJob returns a job with the roles, mounts the gate in their pods, and creates a pipe at the gate for each replica.
func (s *space) newJob(name string, roles ...batch.ReplicaSpec) *batch.GenericJob {
	s.Helper()
	j := jobs.New(name)
	j.Namespace = s.Namespace
	for _, r := range roles {
		s.Mount(&r.Template.Spec)
		j.Spec.ReplicaSpecs = append(j.Spec.ReplicaSpecs, r)
		for rank := range *r.Replicas {
			s.Must(s.AddPipe(fmt.Sprintf("%s-%s-%d", name, r.Type, rank)))
		}
	}
	return j
}

// role returns a role with replicas that run a shell script.
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

// checkNothingCreated verifies that a job has no pods and no Services.
func (s *space) checkNothingCreated(job string) {
	s.Helper()
	for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.ServiceList{}} {
		if err := s.Client.List(s.Context(), list, client.InNamespace(s.Namespace), client.MatchingLabels{batch.LabelJobName: job}); err != nil {
			s.Fatal(err)
		}
		if n := meta.LenList(list); n != 0 {
			s.Errorf("%d objects in %T", n, list)
		}
	}
}

// fence runs a small job to its end. Afterwards, the controller has observed all earlier changes.
func (s *space) fence() {
	s.Helper()
	s.fences++
	name := fmt.Sprintf("fence-%d", s.fences)
	s.Create(s.newJob(name, role("x", 1, "exit 0")))
	s.awaitPhase(name, batch.JobSucceeded)
}
