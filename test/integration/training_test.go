package integration

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/kubectl/pkg/cmd/scale"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
)

// TestScaleSubresourceKeepsToTheBounds verifies that the scale subresource of elastic jobs, which kubectl scale and
// autoscalers write and for which no webhook runs, refuses sizes out of bounds and jobs that cannot be scaled.
func TestScaleSubresourceKeepsToTheBounds(t *testing.T) {
	w := newWorld(t)
	client, err := dynamic.NewForConfig(w.Env.Config)
	w.Must(err)
	s := server{client}
	job := goodJob(t, "pytorch-elastic-roles")
	job.SetName("elastic")
	job = s.create(t, job)
	job.Object["status"] = map[string]any{"replicas": int64(6), "selector": "batch.tensorstack.dev/job-name=elastic"}
	if _, err := s.jobs(t, job).UpdateStatus(t.Context(), job, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	checkScale(t, s.scaleOf(t, job), 6, 6)

	if err := kubectlScale(t, w.Env.Kubeconfig, "pytorchtrainingjob/elastic", 9); err != nil {
		t.Fatalf("kubectl scale: %v", err)
	}
	checkScale(t, s.scaleOf(t, job), 9, 6)
	now, err := s.jobs(t, job).Get(t.Context(), "elastic", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n, _, _ := unstructured.NestedInt64(now.Object, "spec", "elastic", "expectedReplicas"); n != 9 {
		t.Errorf("expectedReplicas is %d", n)
	}

	unset := goodJob(t, "pytorch-elastic") // no webhook has set its size
	unset.SetName("unset")
	unset = s.create(t, unset)
	if err := kubectlScale(t, w.Env.Kubeconfig, "pytorchtrainingjob/unset", 3); err != nil {
		t.Errorf("scaling a job of the smallest size: %v", err)
	}
	if got := s.scaleOf(t, unset).Spec.Replicas; got != 3 {
		t.Errorf("the job of the smallest size has been scaled to %d", got)
	}
	rigid := goodJob(t, "pytorch-minimal")
	rigid.SetName("rigid")
	s.create(t, rigid)
	torchrun := goodJob(t, "pytorch-torchrun")
	torchrun.SetName("torchrun")
	s.create(t, torchrun)
	s.create(t, goodJob(t, "tensorflow-minimal"))
	for _, c := range []struct {
		job  string
		size int
		want string
	}{
		{"pytorchtrainingjob/elastic", 11, "spec.elastic.expectedReplicas: Invalid value: outside of the bounds of this job: choose a number from 2 to 10"},
		{"pytorchtrainingjob/elastic", 0, "choose a number from 2 to 10"},
		{"pytorchtrainingjob/rigid", 2, "the job is not elastic, so it cannot be scaled: set elastic.enabled when you create it"},
		{"pytorchtrainingjob/torchrun", 2, "the job is not elastic, so it cannot be scaled"},
		{"tensorflowtrainingjob/train", 2, `"train" not found`}, // jobs of this kind have no scale
	} {
		if err := kubectlScale(t, w.Env.Kubeconfig, c.job, c.size); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s to %d: got %v, want a refusal with %q", c.job, c.size, err, c.want)
		}
	}
	checkScale(t, s.scaleOf(t, job), 9, 6)
}

func checkScale(t *testing.T, got *autoscalingv1.Scale, want, have int32) {
	t.Helper()
	if got.Spec.Replicas != want || got.Status.Replicas != have || got.Status.Selector != "batch.tensorstack.dev/job-name=elastic" {
		t.Errorf("the scale is %+v with status %+v: want %d replicas, of which there are %d", got.Spec, got.Status, want, have)
	}
}

func (s server) scaleOf(t *testing.T, job *unstructured.Unstructured) *autoscalingv1.Scale {
	t.Helper()
	u, err := s.jobs(t, job).Get(t.Context(), job.GetName(), metav1.GetOptions{}, "scale")
	if err != nil {
		t.Fatal(err)
	}
	scale := &autoscalingv1.Scale{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, scale); err != nil {
		t.Fatal(err)
	}
	return scale
}

// kubectlScale runs `kubectl scale --replicas=N KIND/NAME`.
func kubectlScale(t *testing.T, kubeconfig, job string, replicas int) error {
	t.Helper()
	config := genericclioptions.NewConfigFlags(true)
	config.KubeConfig = &kubeconfig
	var out bytes.Buffer
	streams := genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &out}
	factory := cmdutil.NewFactory(config)
	cmd := scale.NewCmdScale(factory, streams)
	(&cobra.Command{Use: "kubectl"}).AddCommand(cmd)
	options := scale.NewScaleOptions(streams)
	options.Replicas = replicas
	if err := options.Complete(factory, cmd, []string{job}); err != nil {
		t.Fatal(err)
	}
	if err := options.Validate(); err != nil {
		t.Fatal(err)
	}
	return options.RunScale()
}

// testDefaults verifies the defaults that the webhook sets.
func testDefaults(t *testing.T, s server) {
	job := goodJob(t, "pytorch-elastic")
	job.SetName("elastic")
	job = s.create(t, job)
	want := goodJob(t, "pytorch-elastic").Object["spec"].(map[string]any)
	want["elastic"].(map[string]any)["expectedReplicas"] = int64(2)
	want["replicaSpecs"].([]any)[0].(map[string]any)["replicas"] = int64(1) // the CRD's default
	if diff := cmp.Diff(asJSON(t, want), asJSON(t, job.Object["spec"])); diff != "" {
		t.Errorf("another field than expectedReplicas was set (-want +got):\n%s", diff)
	}
	// The test patches the job, because an update would conflict with the operator's writes of the status. The
	// webhook keeps a value, and sets it again if it is removed.
	for _, c := range []struct {
		to   string
		size int64
	}{{"3", 3}, {"null", 2}} {
		patch := []byte(`{"spec":{"elastic":{"expectedReplicas":` + c.to + `}}}`)
		job, err := s.jobs(t, job).Patch(t.Context(), job.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if n, _, _ := unstructured.NestedInt64(job.Object, "spec", "elastic", "expectedReplicas"); n != c.size {
			t.Errorf("set to %s, the size is %d, not %d", c.to, n, c.size)
		}
	}
	rigid := goodJob(t, "pytorch-torchrun")
	rigid.SetName("rigid")
	// The CRD stores the value 0 for an unset size, which the scale subresource requires.
	unsaid := map[string]any{"expectedReplicas": int64(0)}
	if diff := cmp.Diff(unsaid, s.create(t, rigid).Object["spec"].(map[string]any)["elastic"]); diff != "" {
		t.Errorf("a job that was not elastic became elastic (-want +got):\n%s", diff)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
