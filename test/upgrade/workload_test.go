package upgrade

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/kinds/kindtest"
	"tensorstack.dev/batch/test/kit/gate"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/namespace"
)

// These are the scripts of replicas. Replicas that wait all read from one pipe and use no processor time.
const (
	waits        = `read order < /gate/go; exit 0`
	restartsOnce = `[ -e /gate/$HOSTNAME ] || { touch /gate/$HOSTNAME; exit 1; }; ` + waits
	succeeds     = `exit 0`
	fails        = `exit 3`
)

// manifest is the manifest of a job with one role. It uses only fields that every version has.
const manifest = `
apiVersion: batch.tensorstack.dev/v1beta1
kind: %s
metadata: {name: %s}
spec:
%s
  replicaSpecs:
  - type: worker
    replicas: %d
    restartPolicy: %s
    template:
      spec:
        terminationGracePeriodSeconds: 1
        volumes: [{name: gate, hostPath: {path: %s}}]
        containers:
        - name: tensorflow # the only name that all kinds accept
          image: none
          command: [sh, -c, %q]
          resources: {requests: {cpu: %s}}
          volumeMounts: [{name: gate, mountPath: /gate}]
`

// elasticManifest is the manifest of an elastic job with two replicas. Its torchrun is the script that newWorkload
// writes.
const elasticManifest = `
apiVersion: batch.tensorstack.dev/v1beta1
kind: PyTorchTrainingJob
metadata: {name: %s}
spec:
  elastic: {enabled: true, minReplicas: 1, maxReplicas: 3, expectedReplicas: 2}
  torchrunConfig: {enabled: true}
  replicaSpecs:
  - type: node
    restartPolicy: OnFailure
    template:
      spec:
        terminationGracePeriodSeconds: 1
        volumes: [{name: gate, hostPath: {path: %s}}]
        containers:
        - name: pytorch
          image: none
          command: [train]
          env: [{name: PATH, value: "/gate:/usr/bin:/bin"}]
          volumeMounts: [{name: gate, mountPath: /gate}]
`

// workload is a set of jobs that run during upgrades.
type workload struct {
	*namespace.Test
	gate *gate.Gate
	pods map[string]string // parts of each pod that must not change, by name
	jobs map[string]string // parts of the status of each job that must not change, by name
}

// newWorkload returns an empty workload with the pipe from which waiting processes read, and a torchrun that waits.
func newWorkload(t *testing.T, s *namespace.Test) *workload {
	t.Helper()
	w := &workload{Test: s, gate: gate.New(t)}
	w.Must(os.Chmod(w.gate.Dir(), 0o777)) //nolint:gosec // all users that pods run as write to it
	w.Must(w.gate.AddPipe("go"))
	w.Must(os.WriteFile(w.gate.File("torchrun"), []byte("#!/bin/sh\n"+waits+"\n"), 0o755)) //nolint:gosec // it is a program
	return w
}

// create creates a job of a kind. If queue is not empty, the job is in that queue.
func (w *workload) create(kind kinds.Kind, name, queue, script string, replicas int, restart string) error {
	spec, cpu := "", "0"
	if kind.Training == nil { // the restart policy of a GenericJob is an object with a limit
		restart = map[string]string{"Never": "{policy: Never}", "OnFailure": "{policy: OnFailure, limit: 3}"}[restart]
	}
	if queue != "" {
		spec, cpu = "  scheduler: {t9kScheduler: {queue: "+queue+"}}", "10m"
	}
	return w.createManifest(fmt.Sprintf(manifest, kind.Name, name, spec, replicas, restart, w.gate.Dir(), script, cpu))
}

// createManifest creates the object of a manifest.
func (w *workload) createManifest(text string) error {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		return err
	}
	o.SetNamespace(w.Namespace)
	return w.Client.Create(w.Context(), o)
}

// These are the numbers of jobs in each group, and the numbers of replicas of gangs and of elastic jobs. There is
// room for fittingGangs of the gangs.
const (
	running, elastic, paused, restarted, succeeded, failed, gangs = 33, 2, 3, 6, 4, 2, 10

	gangSize, fittingGangs, elasticSize = 2, 8, 2
)

// start creates 50 jobs and 10 gangs of all kinds, and waits until each is in the state that it keeps until release.
func (w *workload) start(queue string) {
	w.Helper()
	add := func(prefix string, n int, queue, script, restart string, replicas int) {
		for i := range n {
			w.Must(w.create(kinds.All[i%len(kinds.All)], fmt.Sprintf("%s-%d", prefix, i), queue, script, replicas, restart))
		}
	}
	add("gang", gangs, queue, waits, "Never", gangSize)
	add("running", running, "", waits, "Never", 1)
	for i := range elastic {
		w.Must(w.createManifest(fmt.Sprintf(elasticManifest, fmt.Sprintf("elastic-%d", i), w.gate.Dir())))
	}
	add("paused", paused, "", waits, "Never", 1)
	w.setPause(true)
	add("restarted", restarted, "", restartsOnce, "OnFailure", 1)
	add("succeeded", succeeded, "", succeeds, "Never", 1)
	add("failed", failed, "", fails, "Never", 1)
	w.awaitPhases(map[string]int{
		"gang Running": fittingGangs, "gang Pending": gangs - fittingGangs, "running Running": running, "elastic Running": elastic, "paused Paused": paused, "restarted Running": restarted,
		"succeeded Succeeded": succeeded, "failed Failed": failed,
	})
	w.Await("all statuses are settled", func() error {
		for name, status := range w.statuses() {
			if err := settled(name, status); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
	w.pods, w.jobs = w.podStates(), w.jobStates()
}

// settled returns an error if the status of the job with this name is still going to change.
func settled(name string, status *batch.JobStatus) error {
	group, _, _ := strings.Cut(name, "-")
	switch {
	case group == "restarted" && status.BackoffCount != 1:
		return fmt.Errorf("it has restarted %d times", status.BackoffCount)
	case group == "elastic" && status.Aggregate.Running != elasticSize:
		return fmt.Errorf("%d replicas run", status.Aggregate.Running)
	case group == "paused" && status.Tasks[0].Replicas[0].UID != "":
		return errors.New("its pod is being deleted")
	}
	return nil
}

// setPause pauses or resumes the jobs that are paused during the upgrades.
func (w *workload) setPause(on bool) {
	w.Helper()
	all, err := w.Jobs(w.Context())
	w.Must(err)
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"runMode":{"pause":{"enabled":%t}}}}`, on))
	for _, j := range all {
		if strings.HasPrefix(j.GetName(), "paused-") {
			w.Must(w.Client.Patch(w.Context(), j, patch))
		}
	}
}

// release makes all waiting processes exit, and also those that start later.
func (w *workload) release() {
	w.Helper()
	pipe, err := os.OpenFile(w.gate.File("go"), os.O_RDWR, 0)
	w.Must(err)
	w.Cleanup(func() { pipe.Close() })
	w.Must(unix.SetNonblock(int(pipe.Fd()), true))
	_, err = pipe.WriteString(strings.Repeat("\n", 4096))
	w.Must(err)
}

// statuses returns the statuses of all jobs of the workload.
func (w *workload) statuses() map[string]*batch.JobStatus {
	w.Helper()
	all, err := w.Jobs(w.Context())
	w.Must(err)
	statuses := map[string]*batch.JobStatus{}
	for _, j := range all {
		statuses[j.GetName()] = jobs.StatusOf(j)
	}
	return statuses
}

// awaitPhases waits until the numbers of jobs by group and phase equal want, whose keys are "GROUP PHASE".
func (w *workload) awaitPhases(want map[string]int) {
	w.Helper()
	w.Await("all jobs are in their phases", func() error {
		got := map[string]int{}
		for name, status := range w.statuses() {
			group, _, _ := strings.Cut(name, "-")
			got[group+" "+string(status.Phase)]++
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("(-want +got)\n%s", diff)
		}
		return nil
	})
}

// jobStates returns the parts of the status of each job that must not change. The conditions of a waiting job may
// change.
func (w *workload) jobStates() map[string]string {
	w.Helper()
	states := map[string]string{}
	for name, status := range w.statuses() {
		if status.Phase == batch.JobPending {
			status.Conditions = nil
		}
		status.ObservedGeneration = 0 // it changes because the test changes a spec
		data, err := json.Marshal(status)
		w.Must(err)
		states[name] = string(data)
	}
	return states
}

// podStates returns the parts of each pod that must not change.
func (w *workload) podStates() map[string]string {
	w.Helper()
	states := map[string]string{}
	for _, p := range w.Pods() {
		text := fmt.Sprintf("%s on %q, %s, deleted %v", p.UID, p.Spec.NodeName, p.Status.Phase, p.DeletionTimestamp)
		for _, c := range p.Status.ContainerStatuses {
			text += fmt.Sprintf(", %s restarted %d times", c.ContainerID, c.RestartCount)
		}
		states[p.Name] = text
	}
	return states
}

// checkKept checks that no pod and no status has changed since start returned. No job of probe may exist.
func (w *workload) checkKept() {
	w.Helper()
	if diff := cmp.Diff(w.pods, w.podStates()); diff != "" {
		w.Errorf("pods have changed (-before +after)\n%s", diff)
	}
	if diff := cmp.Diff(w.jobs, w.jobStates()); diff != "" {
		w.Errorf("statuses have changed (-before +after)\n%s", diff)
	}
}

// probe verifies that the installation works: a job of each kind and one gang succeed, and the webhook refuses an
// invalid job. It deletes its jobs.
func (w *workload) probe() {
	w.Helper()
	for _, kind := range kinds.All {
		w.Must(w.create(kind, "probe-"+kind.Plural, "", succeeds, 1, "Never"))
	}
	w.Must(w.create(*kindtest.Named("GenericJob"), "probe-gang", scheduling.DefaultQueue, succeeds, 2, "Never"))
	w.Await("the probes have succeeded", func() error {
		for name, status := range w.statuses() {
			if strings.HasPrefix(name, "probe-") && status.Phase != batch.JobSucceeded {
				return fmt.Errorf("%s is %s", name, status.Phase)
			}
		}
		return nil
	})
	w.Await("the webhook refuses an invalid job", func() error {
		err := w.create(*kindtest.Named("GenericJob"), "probe-invalid", "", "echo $(replicas[nobody])", 1, "Never")
		if err == nil {
			w.delete("probe-invalid")
		}
		if err == nil || !strings.Contains(err.Error(), "admission webhook") {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	w.delete("probe-")
}

// delete deletes the jobs whose names have a prefix, and waits until their pods are deleted.
func (w *workload) delete(prefix string) {
	w.Helper()
	all, err := w.Jobs(w.Context())
	w.Must(err)
	for _, j := range all {
		if strings.HasPrefix(j.GetName(), prefix) {
			w.Must(client.IgnoreNotFound(w.Client.Delete(w.Context(), j)))
		}
	}
	w.Await("the pods of "+prefix+" are gone", func() error {
		names := slices.Collect(maps.Keys(w.podStates()))
		if i := slices.IndexFunc(names, func(n string) bool { return strings.HasPrefix(n, prefix) }); i >= 0 {
			return fmt.Errorf("%s is there", names[i])
		}
		return nil
	})
}

// deleteJobs deletes all jobs. Call it before the CustomResourceDefinitions are deleted, because the garbage collector
// can keep the pods of jobs whose kind no longer exists.
func (w *workload) deleteJobs() {
	w.Helper()
	for _, kind := range kinds.All {
		w.Must(w.Client.DeleteAllOf(w.Context(), kind.New(), client.InNamespace(w.Namespace), client.PropagationPolicy(metav1.DeletePropagationForeground)))
	}
}

// awaitNoPods waits until the workload has no pods.
func (w *workload) awaitNoPods() {
	w.Helper()
	w.Await("no pods are left", func() error {
		if n := len(w.Pods()); n > 0 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
}

// checkRestarts checks that no replica has restarted since start returned.
func (w *workload) checkRestarts() {
	w.Helper()
	for name, status := range w.statuses() {
		want := int32(0)
		if strings.HasPrefix(name, "restarted-") {
			want = 1
		}
		if status.BackoffCount != want {
			w.Errorf("%s has restarted %d times, want %d", name, status.BackoffCount, want)
		}
	}
}
