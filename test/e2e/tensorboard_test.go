package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/cli"
	"tensorstack.dev/batch/internal/testing/require"
	"tensorstack.dev/batch/test/kit/gate"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/namespace"
	"tensorstack.dev/batch/test/kit/watch"
)

// init adds the replacement for TensorBoard to the PATH of all programs that these tests start. Containers use the
// machine's PATH.
func init() {
	dir, err := filepath.Abs("testdata/bin")
	if err != nil {
		panic(err)
	}
	if err := os.Setenv("PATH", dir+":"+os.Getenv("PATH")); err != nil {
		panic(err)
	}
}

func requireStandIn(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		require.Missing(t, "python3")
	}
}

// claim creates a PersistentVolumeClaim for the gate's directory.
func (s *space) claim(name string) {
	s.Helper()
	class, size := "", corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace + "-" + name}, Spec: corev1.PersistentVolumeSpec{
		Capacity: size, AccessModes: modes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		ClaimRef:               &corev1.ObjectReference{Namespace: s.Namespace, Name: name},
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: s.Dir()}}}}
	if err := s.Client.Create(s.Context(), volume); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := s.Client.Delete(s.AfterTest(), volume); err != nil {
			s.Log("deleting the volume: ", err)
		}
	})
	s.Create(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: modes, StorageClassName: &class, VolumeName: volume.Name, Resources: corev1.VolumeResourceRequirements{Requests: size}}})
}

// awaitBoard waits until cond holds for a TensorBoard, and returns the TensorBoard.
func (s *space) awaitBoard(name, what string, cond func(*tensorboard.TensorBoard) bool) *tensorboard.TensorBoard {
	s.Helper()
	var last *tensorboard.TensorBoard
	defer func() {
		if s.Failed() && last != nil {
			text, _ := yaml.Marshal(last.Status) // plain data always has a YAML form
			s.Logf("TensorBoard %s:\n%s", name, text)
		}
	}()
	return namespace.AwaitList(s.Test, "TensorBoard "+name+": "+what, &tensorboard.TensorBoardList{}, func(all []*tensorboard.TensorBoard) bool {
		if len(all) == 1 {
			last = all[0]
		}
		return len(all) == 1 && cond(all[0])
	}, watch.Named(name))[0]
}

func boardCondition(tb *tensorboard.TensorBoard, t tensorboard.ConditionType) tensorboard.Condition {
	i := slices.IndexFunc(tb.Status.Conditions, func(c tensorboard.Condition) bool { return c.Type == t })
	if i < 0 {
		return tensorboard.Condition{}
	}
	return tb.Status.Conditions[i]
}

func (s *space) awaitBoardReady(name string) *tensorboard.TensorBoard {
	s.Helper()
	return s.awaitBoard(name, "ready", func(tb *tensorboard.TensorBoard) bool {
		return boardCondition(tb, tensorboard.Ready).Status == metav1.ConditionTrue && tb.Status.ObservedGeneration == tb.Generation
	})
}

// awaitBoardReason waits until the condition Ready of a TensorBoard has the reason and a message that contains text.
func (s *space) awaitBoardReason(name, reason, text string) *tensorboard.TensorBoard {
	s.Helper()
	return s.awaitBoard(name, reason+": "+text, func(tb *tensorboard.TensorBoard) bool {
		c := boardCondition(tb, tensorboard.Ready)
		return c.Reason == reason && strings.Contains(c.Message, text)
	})
}

// visitor is a pod from which a test sends requests to Services.
const visitor = "visitor"

func (s *space) startVisitor() {
	s.Helper()
	grace := int64(0)
	s.Create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: visitor}, Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace,
		Containers: []corev1.Container{{Name: "main", Image: "busybox", Command: []string{"sleep", "1000000"}}}}})
	s.pod(visitor, "runs", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
}

// visit gets a URL from within the cluster and returns the body of the answer. It retries until there is a successful
// answer, because a Service takes a moment to find its pod.
func (s *space) visit(url string) string {
	s.Helper()
	const get = `import sys, time, urllib.request
until, last = time.time() + 150, None
while time.time() < until:
  try: print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode()); break
  except OSError as e: last = e; time.sleep(0.1)
else: sys.exit(repr(last))`
	return s.exec(s.Namespace, visitor, "main", "python3 -c '"+get+"' "+url)
}

// files decodes the text with which the replacement for TensorBoard answers: the sizes of the files that it shows, by
// source and path.
func (s *space) files(text string) map[string]map[string]int {
	s.Helper()
	all := map[string]map[string]int{}
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		s.Fatalf("reading %q: %v", text, err)
	}
	return all
}

func (s *space) dependent(j client.Object) *batch.DependentStatus {
	_, status := jobs.KindOf(j).Training(j)
	return status.TensorBoard
}

// awaitDependent waits until cond holds for the part of a job's status that describes the job's TensorBoard, and
// returns the job.
func awaitDependent[T client.Object](s *space, j T, what string, cond func(*batch.DependentStatus) bool) T {
	s.Helper()
	return namespace.AwaitList(s.Test, "job "+j.GetName()+": its TensorBoard is "+what, jobs.ListOf(jobs.KindOf(j)), func(jobs []T) bool {
		return len(jobs) == 1 && s.dependent(jobs[0]) != nil && cond(s.dependent(jobs[0]))
	}, watch.Named(j.GetName()))[0]
}

// TestTensorBoardBelongsToItsJob verifies that a job's TensorBoard is created with the job, shows the job's logs,
// remains after the job's end, and is deleted with the job.
func TestTensorBoardBelongsToItsJob(t *testing.T) {
	t.Parallel()
	requireStandIn(t)
	for kind, make := range trainingKinds {
		t.Run(kind, func(t *testing.T) {
			s := newSpace(t)
			s.claim("logs")
			s.startVisitor()
			worker := role("worker", 1, `mkdir -p /gate/run; echo 12345 > /gate/run/events.out.tfevents.1; `+gate.Obey)
			j := make(s, "train", worker)
			jobs.TrainingOf(j).TensorBoardSpec = &tensorboard.TensorBoardSpec{Image: "tensorboard",
				LogDir: &tensorboard.LogDir{PVC: []tensorboard.PVCSource{{Name: "logs", SubPath: []string{"run"}}}}}
			s.Create(j)
			tb := s.awaitBoardReady("train")
			if !metav1.IsControlledBy(tb, j) {
				t.Errorf("the TensorBoard belongs to %+v", tb.OwnerReferences)
			}
			j = awaitDependent(s, j, "ready", func(d *batch.DependentStatus) bool { return d.Ready })
			if d := s.dependent(j); d.Dependent == nil || d.Dependent.UID != tb.UID || d.Type != corev1.EventTypeNormal {
				t.Errorf("the job reports its TensorBoard as %+v", d)
			}
			s.awaitStarts("train-worker-0", 1)
			shown := func() {
				if files := s.files(s.visit(tb.Status.URL + "files")); files["."]["events.out.tfevents.1"] != 6 {
					t.Errorf("the TensorBoard shows %v", files)
				}
			}
			shown()
			s.order("train-worker-0", 0)
			j = awaitPhase(s, j, batch.JobSucceeded)
			shown()
			awaitDependent(s, j, "ready after the job's end", func(d *batch.DependentStatus) bool { return d.Ready })
			if now := s.awaitBoardReady("train"); now.UID != tb.UID || now.Status.Pod.Reference != tb.Status.Pod.Reference {
				t.Errorf("the TensorBoard was replaced at the job's end: %+v", now.Status)
			}
			s.forwarded("train")
			if err := s.Client.Delete(t.Context(), j); err != nil {
				t.Fatal(err)
			}
			namespace.AwaitList(s.Test, "the TensorBoard no longer exists", &tensorboard.TensorBoardList{}, func(l []*tensorboard.TensorBoard) bool { return len(l) == 0 })
			namespace.AwaitList(s.Test, "its Deployment no longer exists", &appsv1.DeploymentList{}, func(l []*appsv1.Deployment) bool { return len(l) == 0 })
			namespace.AwaitList(s.Test, "its Service no longer exists", &corev1.ServiceList{}, func(l []*corev1.Service) bool {
				return !slices.ContainsFunc(l, func(s *corev1.Service) bool { return s.Name == "train-tensorboard" })
			})
		})
	}
}

// forwarded verifies that `t9k tensorboard` forwards requests to a TensorBoard.
func (s *space) forwarded(address string, args ...string) {
	s.Helper()
	s.forwardedTo(s.Env.Kubeconfig, address, args...)
}

// forwardedTo does what forwarded does, as the user of a kubeconfig.
func (s *space) forwardedTo(kubeconfig, address string, args ...string) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	out, in := io.Pipe()
	var errs lockedBuffer
	code := make(chan int, 1)
	go func() {
		defer in.Close()
		code <- s.t9kWith(ctx, kubeconfig, in, &errs, append([]string{"tensorboard", address}, args...)...)
	}()
	defer func() {
		cancel()
		_, _ = io.Copy(io.Discard, out) // returns when the command exits
		if c := <-code; c != 0 && c != 130 {
			s.Errorf("t9k tensorboard %s ends with %d: %s", address, c, errs.String())
		}
	}()
	var url string
	if _, err := fmt.Fscanln(out, &url); err != nil {
		s.Fatalf("t9k tensorboard %s: %v: %s", address, err, errs.String())
	}
	answer, err := http.Get(url)
	if err != nil {
		s.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK || !strings.Contains(string(text), "TensorBoard") {
		s.Errorf("GET %s: %s: %s", url, answer.Status, text)
	}
}

// t9k runs a t9k command on the space's cluster and returns its exit code.
func (s *space) t9k(ctx context.Context, out, errs io.Writer, args ...string) int {
	return s.t9kWith(ctx, s.Env.Kubeconfig, out, errs, args...)
}

// t9kWith does what t9k does, as the user of a kubeconfig.
func (s *space) t9kWith(ctx context.Context, kubeconfig string, out, errs io.Writer, args ...string) int {
	line := append([]string{"t9k", "--kubeconfig", kubeconfig, "-n", s.Namespace}, args...)
	return cli.Main(ctx, line, genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: errs})
}

// lockedBuffer is a buffer that can be read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestIdleTensorBoardIsSuspended verifies that a TensorBoard without requests becomes idle and is then suspended, that
// a request makes it active again, and that a resumed TensorBoard has the same address.
func TestIdleTensorBoardIsSuspended(t *testing.T) {
	t.Parallel()
	requireStandIn(t)
	requireCluster(t)
	s := newSpaceOn(t, timed.Get(t))
	s.claim("logs")
	s.startVisitor()
	s.Create(&tensorboard.TensorBoard{ObjectMeta: metav1.ObjectMeta{Name: "board"}, Spec: tensorboard.TensorBoardSpec{
		Image: "tensorboard", TrainingLogFilesets: []string{"t9k://pvc/logs/run"}}})
	first := s.awaitBoardReady("board")
	idle := func(tb *tensorboard.TensorBoard) metav1.ConditionStatus {
		return boardCondition(tb, tensorboard.Idle).Status
	}
	s.awaitBoard("board", "idle", func(tb *tensorboard.TensorBoard) bool { return idle(tb) == metav1.ConditionTrue })
	visited, stop := context.WithCancel(t.Context())
	var visits sync.WaitGroup
	visits.Go(func() { // repeatedly, because the operator reads the activity only once in a while
		for visited.Err() == nil {
			s.visit(first.Status.URL)
		}
	})
	tb := s.awaitBoard("board", "active again", func(tb *tensorboard.TensorBoard) bool { return idle(tb) == metav1.ConditionFalse })
	stop()
	visits.Wait()
	if boardCondition(tb, tensorboard.Idle).Reason != tensorboard.ReasonActive {
		t.Errorf("after a request: %+v", boardCondition(tb, tensorboard.Idle))
	}
	tb = s.awaitBoard("board", "suspended", func(tb *tensorboard.TensorBoard) bool { return tb.Status.Phase == tensorboard.Suspended })
	if tb.Spec.Suspend == nil || !*tb.Spec.Suspend {
		t.Errorf("the TensorBoard is suspended, and spec.suspend is %v", tb.Spec.Suspend)
	}
	namespace.AwaitList(s.Test, "its pod no longer exists", &corev1.PodList{}, func(p []*corev1.Pod) bool { return len(p) == 0 }, client.HasLabels{tensorboard.LabelTensorBoard})
	var errs lockedBuffer
	if code := s.t9k(t.Context(), io.Discard, &errs, "tensorboard", "board"); code != 1 || !strings.Contains(errs.String(), "t9k tensorboard board --resume") {
		t.Errorf("t9k tensorboard for a suspended TensorBoard ends with %d: %s", code, errs.String())
	}
	resumed := time.Now()
	s.forwarded("board", "--resume")
	tb = s.awaitBoardReady("board")
	t.Logf("resumed within %s", time.Since(resumed).Round(time.Millisecond))
	if tb.Status.URL != first.Status.URL {
		t.Errorf("resumed, its address is %s, and was %s", tb.Status.URL, first.Status.URL)
	}
	s.visit(tb.Status.URL)
}
