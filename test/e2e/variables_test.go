package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// TestVariables: §3, what the processes of a job find in their commands, arguments and environment.
func TestVariables(t *testing.T) {
	s := newSpace(t)
	const all = `$(type)/$(rank) of $(replicas[worker]) workers and $(replicas[ps]) ps, $(service.ps[0].host):$(service.port[grpc]), ` +
		`$(OTHER) $(UNKNOWN) $$(rank) $$$(rank)`
	worker := role("worker", 2, "")
	c := &worker.Template.Spec.Containers[0]
	// The script is the same for all; what it prints comes by the three ways.
	c.Command = []string{"sh", "-c", `echo "command: $1"; echo "args: $2"; echo "env: $TEXT"`, "sh", all}
	c.Args = []string{all}
	c.Env = []corev1.EnvVar{{Name: "OTHER", Value: "other"}, {Name: "TEXT", Value: all}}
	initial := *c.DeepCopy()
	initial.Name = "initial"
	worker.Template.Spec.InitContainers = []corev1.Container{initial}
	j := s.newJob("vars", worker, role("ps", 1, "exit 0"))
	j.Spec.Service = &batch.ServiceOption{Ports: []corev1.ServicePort{{Name: "grpc", Port: 2222}}}
	s.create(j)
	s.awaitPhase("vars", batch.JobSucceeded)

	for _, rank := range []string{"0", "1"} {
		text := "worker/" + rank + " of 2 workers and 1 ps, vars-ps-0:2222, other $(UNKNOWN) $(rank) $" + rank
		want := "command: " + text + "\nargs: " + text + "\nenv: " + text + "\n"
		for _, container := range []string{"initial", "main"} {
			if got := s.log("vars-worker-"+rank, container); got != want {
				t.Errorf("container %s of rank %s writes\n%swant\n%s", container, rank, got, want)
			}
		}
	}
}

// TestBadReferences: §3, a reference to what the job does not have is quoted on the job, and nothing is created.
func TestBadReferences(t *testing.T) {
	for name, reference := range map[string]string{
		"role": "$(service.master[0].host)", "rank": "$(service.worker[2].host)", "port": "$(service.port[grpc])", "replicas": "$(replicas[master])",
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpace(t)
			j := s.newJob("bad", role("worker", 2, "echo "+reference))
			j.Spec.Service = &batch.ServiceOption{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}
			s.checkInvalid(j, reference)
		})
	}
	t.Run("no service", func(t *testing.T) {
		s := newSpace(t)
		s.checkInvalid(s.newJob("bad", role("worker", 2, "echo $(service.worker[0].host)")), "$(service.worker[0].host)")
	})
}

// checkInvalid creates a job that the API server takes and the controller does not, and waits for it to say so.
func (s *space) checkInvalid(j *batch.GenericJob, quoted string) {
	s.t.Helper()
	s.create(j)
	got := s.awaitPhase(j.Name, batch.JobFailed)
	c := condition(got, batch.JobFailedCondition)
	if c.Reason != batch.ReasonInvalidSpec || !strings.Contains(c.Message, quoted) {
		s.t.Errorf("condition Failed: %s: %s; want %s with %s", c.Reason, c.Message, batch.ReasonInvalidSpec, quoted)
	}
	s.awaitEvent(j.Name, batch.ReasonInvalidSpec, quoted)
	s.checkNothingCreated(j.Name)
}
