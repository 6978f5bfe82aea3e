package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/gate"
	"tensorstack.dev/batch/test/kit/jobs"
)

// besides adds to a role a container that runs until it is stopped, and a native sidecar that does the same. Their
// processes are among those that processes returns.
func (s *space) besides(r batch.ReplicaSpec) batch.ReplicaSpec {
	spec := &r.Template.Spec
	endless := spec.Containers[0].DeepCopy()
	endless.Name, endless.Command, endless.Args = "endless", []string{"sh", "-c", "trap 'exit 7' TERM; while :; do sleep 0.1; done"}, nil
	native := endless.DeepCopy()
	native.Name, native.RestartPolicy = "native", new(corev1.ContainerRestartPolicyAlways)
	spec.InitContainers = append(spec.InitContainers, *native)
	spec.Containers = append(spec.Containers, *endless)
	for _, all := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range all {
			all[i].Env = append(all[i].Env, corev1.EnvVar{Name: spaceEnv, Value: s.Namespace})
		}
	}
	return r
}

// TestReplicaEndsWithItsMainContainer verifies that a replica ends with its main container: the other containers are
// stopped, and the pod remains with its output.
func TestReplicaEndsWithItsMainContainer(t *testing.T) {
	t.Parallel()
	for kind, build := range trainingKinds {
		t.Run(kind, func(t *testing.T) {
			s := newSpace(t)
			j := build(s, "job", s.besides(under(batch.TrainingRestartExitCode, role("worker", 3, gate.Obey))))
			s.Create(limited(j, 1))
			s.order("job-worker-1", 137)
			s.awaitStarts("job-worker-1", 2)
			s.awaitStarts("job-worker-0", 1)
			if len(s.processes("job-worker-0")) == 0 {
				t.Error("processes finds none of a running pod, so awaitStopped proves nothing")
			}
			s.orders("job-worker-1", 0)
			s.order("job-worker-2", 1)
			j = awaitStatus(s, j, "two replicas have ended", func(now *batch.JobStatus) bool {
				return now.Aggregate.Succeeded == 1 && now.Aggregate.Failed == 1 && now.Aggregate.Running == 1
			})
			s.awaitStopped(j, "job-worker-1", "job-worker-2")
			s.order("job-worker-0", 0)
			j = awaitPhase(s, j, batch.JobSucceeded)
			s.awaitStopped(j, "job-worker-0")
			s.fence()
			s.checkRestarts(read(s, j), map[string]int{"job-worker-0": 0, "job-worker-1": 1, "job-worker-2": 0})
			if r := jobs.Replica(read(s, j), "job-worker-0"); r.Phase != batch.ReplicaSucceeded || r.Reason != "" {
				t.Errorf("the master's replica is %+v", r)
			}
			s.log("job-worker-0", "endless") // the pod still exists with its output
		})
	}
}

// awaitStopped waits until pods of a job have ended without being deleted, and verifies that none of their processes
// run.
func (s *space) awaitStopped(j client.Object, pods ...string) {
	s.Helper()
	for _, name := range pods {
		s.pod(name, "stopped", func(p *corev1.Pod) bool {
			return p.DeletionTimestamp == nil && (p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded)
		})
		if running := s.processes(name); len(running) > 0 {
			s.Errorf("in pod %s of %s run %+v", name, j.GetName(), running)
		}
	}
}
