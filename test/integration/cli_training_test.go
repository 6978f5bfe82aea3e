package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/apiproxy"
	"tensorstack.dev/batch/test/kit/kubelet"
	"tensorstack.dev/batch/test/kit/namespace"
)

// elasticManifest is the manifest of a PyTorchTrainingJob with 2 to 4 replicas, which run until the test stops them.
const elasticManifest = `
apiVersion: batch.tensorstack.dev/v1beta1
kind: PyTorchTrainingJob
metadata: {name: %s}
spec:
  torchrunConfig: {enabled: true}
  elastic: {enabled: true, minReplicas: 2, maxReplicas: 4}
  runPolicy: {backoffLimit: 1, activeDeadlineSeconds: 3600, cleanUpPolicy: Unfinished}
  replicaSpecs:
    - type: worker
      template:
        spec:
          containers: [{name: pytorch, image: none, args: [train.py]}]
`

// tensorFlowManifest is the manifest of a TensorFlowTrainingJob whose replicas run until the test stops them.
const tensorFlowManifest = `
apiVersion: batch.tensorstack.dev/v1beta1
kind: TensorFlowTrainingJob
metadata: {name: %s}
spec:
  replicaSpecs:
    - type: chief
      template:
        spec:
          containers: [{name: tensorflow, image: none, command: [run]}]
    - type: worker
      template:
        spec:
          containers: [{name: tensorflow, image: none, command: [run]}]
`

// apply creates the jobs of a manifest with t9k.
func (w *world) apply(text string) {
	w.Helper()
	w.start(text, "run", "-f", "-", "-d").ends(0)
}

// pytorch reads a PyTorchTrainingJob.
func (w *world) pytorch(name string) *batch.PyTorchTrainingJob {
	w.Helper()
	j := &batch.PyTorchTrainingJob{}
	w.Must(w.Get(name, j))
	return j
}

// awaitPyTorch waits until a PyTorchTrainingJob has the phase and the number of running replicas, and returns the job.
func (w *world) awaitPyTorch(name string, phase batch.JobPhase, running int32) *batch.PyTorchTrainingJob {
	w.Helper()
	j := &batch.PyTorchTrainingJob{}
	w.Await(fmt.Sprintf("%s is %s with %d running replicas", name, phase, running), func() error {
		return errors.Join(w.Get(name, j), inPhase(&j.Status.JobStatus, phase, running))
	})
	return j
}

func inPhase(s *batch.JobStatus, phase batch.JobPhase, running int32) error {
	if s.Phase != phase || s.Aggregate.Running != running {
		return fmt.Errorf("it is %q with %d of %d", s.Phase, s.Aggregate.Running, s.Replicas)
	}
	return nil
}

func TestCLIScalesElasticJob(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	w.apply(fmt.Sprintf(elasticManifest, "job"))
	w.awaitPyTorch("job", batch.JobRunning, 2)
	before := w.pods()

	w.contains("scale to too many", w.fails("scale", "job", "5"), "pytorchtrainingjob/job takes from 2 to 4 replicas, not 5")
	w.contains("scale to too few", w.fails("scale", "ptj/job", "1"), "pytorchtrainingjob/job takes from 2 to 4 replicas, not 1")
	if got := w.t9k("scale", "job", "4"); got != "pytorchtrainingjob/job is scaling from 2 to 4 replicas, starting worker-[2-3]\n" {
		t.Errorf("scale to 4: %q", got)
	}
	w.awaitPyTorch("job", batch.JobRunning, 4)
	if got := w.t9k("scale", "job", "4"); got != "pytorchtrainingjob/job has 4 replicas already\n" {
		t.Errorf("scale to 4 again: %q", got)
	}
	if got := w.t9k("scale", "job", "3"); got != "pytorchtrainingjob/job is scaling from 4 to 3 replicas, ending worker-3\n" {
		t.Errorf("scale to 3: %q", got)
	}
	w.awaitPyTorch("job", batch.JobRunning, 3)
	w.Await("worker-3 no longer exists", func() error { return namespace.Gone(w.Get("job-worker-3", &corev1.Pod{})) })
	for _, pod := range []string{"job-worker-0", "job-worker-1"} {
		if now := w.pods()[pod]; now == nil || now.UID != before[pod].UID {
			t.Errorf("scaling replaced pod %s", pod)
		}
	}
	w.contains("completion of names", w.t9k("__complete", "scale", ""), "job\tRunning\n")
	if got := w.t9k("__complete", "scale", "job", ""); !strings.HasPrefix(got, "2\n3\tnow\n4\n") {
		t.Errorf("completion of sizes: %q", got)
	}

	w.t9k("pause", "job")
	w.awaitPyTorch("job", batch.JobPaused, 0)
	w.contains("scale of a paused job", w.t9k("scale", "job", "2"), "from 3 to 2 replicas, ending worker-2\n", `It is paused: "t9k resume job" starts its pods.`)
	w.t9k("resume", "job")
	w.awaitPyTorch("job", batch.JobRunning, 2)

	w.finish("job-worker-1", 0)
	w.Await("one replica has succeeded", func() error {
		if n := w.pytorch("job").Status.Aggregate.Succeeded; n != 1 {
			return fmt.Errorf("%d have", n)
		}
		return nil
	})
	w.contains("scale after a success", w.fails("scale", "job", "4"), "a replica of pytorchtrainingjob/job has succeeded", "would have no effect")
	w.finish("job-worker-0", 0)
	w.awaitPyTorch("job", batch.JobSucceeded, 0)
	w.contains("scale after the end", w.fails("scale", "job", "4"), "pytorchtrainingjob/job has finished (Succeeded)", "would have no effect")
}

func TestCLIScalesOnlyElasticJobs(t *testing.T) {
	w := newWorld(t)
	w.apply(manifest("name: generic", 2, 0, kubelet.Run))
	w.apply(fmt.Sprintf(tensorFlowManifest, "tensor"))
	for name, want := range map[string]string{
		"generic": "genericjob/generic is not elastic and keeps its 2 replicas",
		"tensor":  "tensorflowtrainingjob/tensor is not elastic and keeps its 2 replicas",
		"none":    `no job "none"`,
	} {
		w.contains("scale of "+name, w.fails("scale", name, "3"), want)
	}
	if got := w.t9k("__complete", "scale", ""); strings.Contains(got, "generic") || strings.Contains(got, "tensor") {
		t.Errorf("completion offers a job that cannot be scaled: %q", got)
	}
}

// TestCLIScalesDespiteConcurrentWrites verifies that a write by another client between the read and the scaling of a
// job causes no error and is not undone.
func TestCLIScalesDespiteConcurrentWrites(t *testing.T) {
	w := newWorld(t)
	w.apply(fmt.Sprintf(elasticManifest, "job"))
	p := apiproxy.Start(t, w.Env.Config)
	annotate := func(n int) error {
		j := &batch.PyTorchTrainingJob{}
		j.Namespace, j.Name = w.Namespace, "job"
		return w.Client.Patch(t.Context(), j, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"n":"%d"}}}`, n)))
	}
	writes := 0
	p.Decide(func(r *http.Request) apiproxy.Fate {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/job/scale") && writes < 2 {
			writes++
			if err := annotate(writes); err != nil {
				t.Error(err)
			}
		}
		return apiproxy.Fate{}
	})
	out, _ := w.startVia(p.Kubeconfig, "", "scale", "job", "4", "-o", "json").ends(0)
	var printed batch.PyTorchTrainingJob
	w.Must(json.Unmarshal([]byte(out), &printed))
	if size := printed.Spec.Elastic.ExpectedReplicas; size == nil || *size != 4 || printed.Annotations["n"] != "2" {
		t.Errorf("scale -o json printed\n%s", out)
	}
	var codes []int
	for _, r := range p.Seen(http.MethodPut, "/scale") {
		codes = append(codes, r.Code)
	}
	if fmt.Sprint(codes) != "[409 409 200]" {
		t.Errorf("the answers to writes of the scale are %v", codes)
	}

	// If the job is deleted between the read and the write, scale reports this.
	p.Decide(func(r *http.Request) apiproxy.Fate {
		if r.Method == http.MethodPut {
			w.Must(w.Client.DeleteAllOf(t.Context(), &batch.PyTorchTrainingJob{}, client.InNamespace(w.Namespace)))
		}
		return apiproxy.Fate{}
	})
	_, errOut := w.startVia(p.Kubeconfig, "", "scale", "job", "3").ends(1)
	w.contains("scale of a job that goes", errOut, "scaling pytorchtrainingjob/job to 3 replicas: ", "not found")
}

func TestCLIRunShowsTrainingJob(t *testing.T) {
	w := newSerialWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	run := w.start(fmt.Sprintf(elasticManifest, "job"), "run", "-f", "-")
	run.awaitOutput("pytorchtrainingjob/job  Running")
	w.contains("run", run.out.String(), "replicas 2 (elastic 2-4); worker-0 decides how the job ends; "+
		"rendezvous at job-worker-0:29500 by c10d; at most 1 restart; deadline after 1h0m0s")
	w.t9k("scale", "job", "3")
	run.awaitOutput("pytorchtrainingjob/job  scaled from 2 to 3 replicas")
	w.awaitPyTorch("job", batch.JobRunning, 3)
	w.finish("job-worker-1", 9)
	run.awaitOutput("worker-1                restart 1")
	w.awaitPyTorch("job", batch.JobRunning, 3)

	w.contains("describe", w.t9k("describe", "ptj/job"), "PyTorchTrainingJob", "3 (elastic 2-4)", "1 of 1", "worker-0\n",
		"job-worker-0:29500 by c10d", "1h0m0s, at ", "(in 59m)", "job, pytorch 29500", "OnFailure ", "torchrun --nnodes 2:4", "JobScaled")
	w.contains("get", w.t9k("get", "job"), "PyTorchTrainingJob", "3/3")
	w.contains("logs", w.fails("logs", "job", "--rank", "5"), "rank 5 is out of range")

	terminal := newTerminal(t, 100, 20)
	t.Setenv("NO_COLOR", "1")
	watch := w.startOn(terminal, "get", "job", "--watch")
	terminal.await(w, "3/3 running (elastic 2-4)  1 of 1 restart")
	terminal.await(w, "deadline in ")
	terminal.await(w, "decides")
	w.finish("job-worker-0", 0)
	watch.ends(0)
	out, _ := run.ends(0)
	w.contains("run at the end", out, "pytorchtrainingjob/job Succeeded in ", ", 1 of 1 restart\n")
	w.contains("delete", w.t9k("delete", "ptj/job"), "pytorchtrainingjob/job is deleted\n")
}

func TestCLIControlsTensorFlowJob(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	w.apply(fmt.Sprintf(tensorFlowManifest, "job"))
	j := &batch.TensorFlowTrainingJob{}
	await := func(phase batch.JobPhase, running int32) {
		t.Helper()
		w.Await(fmt.Sprintf("the job is %s", phase), func() error {
			return errors.Join(w.Get("job", j), inPhase(&j.Status.JobStatus, phase, running))
		})
	}
	await(batch.JobRunning, 2)
	w.apply(fmt.Sprintf(elasticManifest, "job")) // after the first job has created the Service of the same name
	w.contains("an ambiguous name", w.fails("describe", "job"), "pytorchtrainingjob/job, tensorflowtrainingjob/job")
	w.contains("describe", w.t9k("describe", "tftj/job"), "chief-0\n", "0 of 3", "job, tensorflow 2222", "OnFailure ")
	w.contains("pause", w.t9k("pause", "tftj/job"), "tensorflowtrainingjob/job is pausing\n")
	await(batch.JobPaused, 0)
	w.contains("debug", w.t9k("debug", "on", "tftj/job"), "is going into debug mode\n")
	w.contains("resume", w.t9k("resume", "tftj/job"), "tensorflowtrainingjob/job is resuming\n")
	await(batch.JobRunning, 2)
	if j.Status.RunMode != batch.RunDebug {
		t.Errorf("the run mode is %s", j.Status.RunMode)
	}
	if got := w.t9k("get", "-o", "name"); got != "pytorchtrainingjob/job\ntensorflowtrainingjob/job\n" {
		t.Errorf("get -o name: %q", got)
	}
	w.contains("delete", w.t9k("delete", "tftj/job"), "tensorflowtrainingjob/job is deleted\n")
	w.contains("what is left", w.t9k("get"), "PyTorchTrainingJob")
}
