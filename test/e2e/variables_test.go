package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// TestVariablesExpandInCommandsAndEnvironment verifies the values that the processes of a job get in their commands,
// arguments and environment.
func TestVariablesExpandInCommandsAndEnvironment(t *testing.T) {
	s := newSpace(t)
	const all = `$(type)/$(rank) of $(replicas[worker]) workers and $(replicas[ps]) ps, $(service.ps[0].host):$(service.port[grpc]), ` +
		`$(OTHER) $(UNKNOWN) $$(rank) $$$(rank)`
	worker := role("worker", 2, "")
	c := &worker.Template.Spec.Containers[0]
	// All containers run the same script, which prints its command, its arguments and a variable.
	c.Command = []string{"sh", "-c", `echo "command: $1"; echo "args: $2"; echo "env: $TEXT"`, "sh", all}
	c.Args = []string{all}
	c.Env = []corev1.EnvVar{{Name: "OTHER", Value: "other"}, {Name: "TEXT", Value: all}}
	initial := *c.DeepCopy()
	initial.Name = "initial"
	worker.Template.Spec.InitContainers = []corev1.Container{initial}
	j := s.newJob("vars", worker, role("ps", 1, "exit 0"))
	j.Spec.Service = &batch.ServiceOption{Ports: []corev1.ServicePort{{Name: "grpc", Port: 2222}}}
	s.Create(j)
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

// TestUnknownReferenceIsRefused verifies that a job with a reference to something that it does not have is refused with
// a message that quotes the reference.
func TestUnknownReferenceIsRefused(t *testing.T) {
	s := newSpace(t)
	ports := &batch.ServiceOption{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}
	for _, c := range []struct {
		reference string
		service   *batch.ServiceOption
	}{
		{"$(service.master[0].host)", ports},
		{"$(service.worker[2].host)", ports},
		{"$(service.port[grpc])", ports},
		{"$(replicas[master])", ports},
		{"$(service.worker[0].host)", nil},
	} {
		j := s.newJob("bad", role("worker", 2, "echo "+c.reference))
		j.Spec.Service = c.service
		if err := s.Client.Create(t.Context(), j); err == nil || !strings.Contains(err.Error(), c.reference) {
			t.Errorf("a job with %s: %v", c.reference, err)
		}
	}
	s.checkNothingCreated("bad")
}
