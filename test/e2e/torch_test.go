package e2e

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/require"
	"tensorstack.dev/batch/internal/testing/testenv"
	"tensorstack.dev/batch/test/kit/plane"
)

var withTorch = flag.Bool("torch", false, "run the tests that train with PyTorch (make e2e-torch)")

// torchCluster is the cluster of the training tests. Its pods use a Python with PyTorch, and the delays between
// restarts are short.
var torchCluster = plane.NewShared(func() (*plane.Plane, error) {
	return newCluster(testenv.Options{Settings: map[string][]string{local.Operator: {"jobs: {restartBackoff: 100ms}"}}})
})

// python returns the directory of a Python with PyTorch and torchrun. It puts the directory first in the PATH of all
// programs that this process starts afterwards.
var python = sync.OnceValues(func() (string, error) {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/bin") {
		if exec.Command(filepath.Join(dir, "python3"), "-c", "import torch.distributed").Run() != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "torchrun")); err == nil {
			return dir, os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
		}
	}
	return "", errors.New("python3 with PyTorch, and torchrun (Debian: apt-get install --no-install-recommends python3-torch)")
})

// newTorchSpace creates a namespace on torchCluster and lets the test run in parallel with others. It skips the test
// unless the flag -torch is set. Without PyTorch, it skips the test too, or fails it if all requirements must be met.
func newTorchSpace(t *testing.T) *space {
	t.Helper()
	if !*withTorch {
		t.Skip("trains with PyTorch: make e2e-torch")
	}
	requireCluster(t)
	if _, err := python(); err != nil {
		require.Missing(t, err.Error())
	}
	t.Parallel()
	return newSpaceOn(t, torchCluster.Get(t))
}

// debianOptions are torchrun options that redirect the output of no process, because no process has rank 9. This is
// also the default, but PyTorch 1.13 does not find the default value 0 among the flags of Debian's Python 3.11.
var debianOptions = []string{"--redirects=9:1", "--tee=9:1"}

// training returns the PyTorchTrainingJob of an example. Its checkpoints are in a directory of the test, spaceEnv
// identifies its processes, and torchrun gets debianOptions.
func (s *space) training(name string) *batch.PyTorchTrainingJob {
	s.Helper()
	j := &batch.PyTorchTrainingJob{}
	s.readExample(name, j)
	for i := range j.Spec.ReplicaSpecs {
		spec := &j.Spec.ReplicaSpecs[i].Template.Spec
		for k := range spec.Volumes {
			spec.Volumes[k].HostPath.Path = s.Dir()
		}
		spec.Containers[0].Env = append(spec.Containers[0].Env, corev1.EnvVar{Name: spaceEnv, Value: s.Namespace})
	}
	if run := j.Spec.TorchrunConfig; run != nil {
		run.ExtraOptions = append(run.ExtraOptions, debianOptions...)
	}
	return j
}

// reference returns the weights that a single process reaches with the program of examples/ddp.
var reference = sync.OnceValues(func() ([]float64, error) {
	data, err := os.ReadFile(filepath.Join(examples, "ddp", "job.yaml"))
	if err != nil {
		return nil, err
	}
	j := &batch.PyTorchTrainingJob{}
	if err := yaml.UnmarshalStrict(data, j); err != nil {
		return nil, err
	}
	command := j.Spec.ReplicaSpecs[0].Template.Spec.Containers[0].Command
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=0", "OMP_NUM_THREADS=1")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("training in a single process: %w", err)
	}
	return weightsIn(string(out))
})

// weightsIn returns the weights that rank 0 logs at the end of the training.
func weightsIn(log string) ([]float64, error) {
	_, text, found := strings.Cut(log, "weights ")
	text, _, _ = strings.Cut(text, "\n")
	var weights []float64
	if err := json.Unmarshal([]byte(text), &weights); !found || err != nil {
		return nil, fmt.Errorf("no weights (%w) in\n%s", err, log)
	}
	return weights, nil
}

// weightTolerance is the largest accepted difference of a weight from the weight that a single process reaches, because
// sums of floating-point numbers depend on their order. The weights are of the order of 1; with other data they differ
// in the first digits.
const weightTolerance = 1e-9

// checkWeights compares the weights of a replica with those of a single process.
func (s *space) checkWeights(pod string) {
	s.Helper()
	want, err := reference()
	if err != nil {
		s.Fatal(err)
	}
	got, err := weightsIn(s.log(pod, "pytorch"))
	if err != nil {
		s.Fatal(err)
	}
	if len(got) != len(want) {
		s.Fatalf("%d weights, want %d", len(got), len(want))
	}
	worst := 0.0
	for i := range want {
		worst = max(worst, math.Abs(got[i]-want[i]))
	}
	s.Logf("%d weights are those of a single process to within %.1g", len(want), worst)
	if !(worst <= weightTolerance) {
		s.Errorf("the weights differ from those of a single process by up to %g, want at most %g:\n%v\n%v", worst, weightTolerance, got, want)
	}
}

// awaitLog waits until a container has written the text. Its pod may be replaced meanwhile.
func (s *space) awaitLog(pod, container, text string) {
	s.Helper()
	s.Await(fmt.Sprintf("pod %s writes %q", pod, text), func() error {
		data, err := s.Core.CoreV1().Pods(s.Namespace).GetLogs(pod, &corev1.PodLogOptions{Container: container}).DoRaw(s.Context())
		if err == nil && !strings.Contains(string(data), text) {
			err = fmt.Errorf("it has written\n%s", data)
		}
		return err
	})
}

// uidsOf returns the UIDs of the pods of a job by name.
func (s *space) uidsOf(j client.Object) map[string]string {
	s.Helper()
	uids := map[string]string{}
	for _, p := range s.pods(j.GetName(), "as they are", func([]*corev1.Pod) bool { return true }) {
		uids[p.Name] = string(p.UID)
	}
	return uids
}
