package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/tensorboard/board"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
	"tensorstack.dev/batch/test/kit/namespace"
)

func newBoard(name string) *tensorboard.TensorBoard {
	return &tensorboard.TensorBoard{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: tensorboard.TensorBoardSpec{
		Image: "tensorflow/tensorflow", TrainingLogFilesets: []string{"t9k://pvc/logs/run"}}}
}

// awaitBoard waits until the condition Ready of a TensorBoard has the reason and a message that contains the text, and
// the status reflects the current spec.
func (w *world) awaitBoard(name, reason, text string) *tensorboard.TensorBoard {
	w.Helper()
	tb := &tensorboard.TensorBoard{}
	w.Await(fmt.Sprintf("TensorBoard %s reports %s: %s", name, reason, text), func() error {
		if err := w.Get(name, tb); err != nil {
			return err
		}
		c := board.ReadyCondition(tb)
		if c.Reason != reason || !strings.Contains(c.Message, text) || tb.Status.ObservedGeneration != tb.Generation {
			return fmt.Errorf("it is %s, %s: %s", tb.Status.Phase, c.Reason, c.Message)
		}
		return nil
	})
	return tb
}

func (w *world) awaitDeployment(name, what string, cond func(*appsv1.Deployment) bool) *appsv1.Deployment {
	w.Helper()
	d := &appsv1.Deployment{}
	w.Await("Deployment "+name+": "+what, func() error {
		if err := w.Get(name, d); err != nil {
			return err
		}
		if !cond(d) {
			return fmt.Errorf("it has %d replicas of %s", *d.Spec.Replicas, d.Spec.Template.Spec.Containers[0].Image)
		}
		return nil
	})
	return d
}

func (w *world) patchBoard(name, patch string) {
	w.Helper()
	tb := &tensorboard.TensorBoard{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}}
	w.Must(w.Client.Patch(w.Context(), tb, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// TestTensorBoardMeetsPodSecurityRestricted verifies that a namespace that enforces Pod Security level restricted
// accepts the pod of a TensorBoard with its helper containers.
func TestTensorBoardMeetsPodSecurityRestricted(t *testing.T) {
	w := newWorld(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}
	w.Must(w.Client.Patch(w.Context(), ns, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`))))
	w.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "viewer"}})
	startOperator(t, w.Env.Kubeconfig)
	tb := newBoard("board")
	tb.Spec.LogDir = &tensorboard.LogDir{HTTP: &tensorboard.HTTPSource{URL: []string{"https://example.org/a/events.out.tfevents.1"}}}
	tb.Spec.ServiceAccountName = "viewer"
	w.Create(tb)
	d := w.awaitDeployment("board-tensorboard", "exists", func(*appsv1.Deployment) bool { return true })
	w.Create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Spec: d.Spec.Template.Spec})
	w.patchBoard("board", `{"spec":{"securityContext":{"runAsUser":0}}}`)
	d = w.awaitDeployment("board-tensorboard", "runs as root", func(d *appsv1.Deployment) bool {
		user := d.Spec.Template.Spec.SecurityContext.RunAsUser
		return user != nil && *user == 0
	})
	err := w.Client.Create(w.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "root"}, Spec: d.Spec.Template.Spec})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a TensorBoard that runs as root was accepted: %v", err)
	}
}

// TestTensorBoardObjectsFollowItsSpec verifies that a TensorBoard has a Deployment and a Service that follow its spec,
// and that the operator restores them.
func TestTensorBoardObjectsFollowItsSpec(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	w.Create(newBoard("board"))
	tb := w.awaitBoard("board", tensorboard.ReasonStarting, "")
	d := w.awaitDeployment("board-tensorboard", "exists", func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 1 })
	s := &corev1.Service{}
	w.Must(w.Get("board-tensorboard", s))
	if !metav1.IsControlledBy(d, tb) || !metav1.IsControlledBy(s, tb) {
		t.Errorf("the objects belong to %+v and %+v", d.OwnerReferences, s.OwnerReferences)
	}
	if want := "http://board-tensorboard." + w.Namespace + ".svc/tensorboard/" + w.Namespace + "/board/"; tb.Status.URL != want {
		t.Errorf("its address is %s, want %s", tb.Status.URL, want)
	}
	w.patchBoard("board", `{"spec":{"image":"other"}}`)
	w.awaitDeployment("board-tensorboard", "has the new image", func(d *appsv1.Deployment) bool { return d.Spec.Template.Spec.Containers[0].Image == "other" })
	w.patchBoard("board", `{"spec":{"suspend":true}}`)
	w.awaitDeployment("board-tensorboard", "is stopped", func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 0 })
	if now := w.awaitBoard("board", tensorboard.ReasonSuspended, ""); now.Status.Phase != tensorboard.Suspended || now.Status.URL != tb.Status.URL {
		t.Errorf("suspended: %+v", now.Status)
	}
	w.patchBoard("board", `{"spec":{"suspend":false}}`)
	w.awaitDeployment("board-tensorboard", "is started", func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 1 })

	three := int32(3)
	broken := w.awaitDeployment("board-tensorboard", "", func(*appsv1.Deployment) bool { return true })
	w.Update(broken, func() { broken.Spec.Replicas = &three })
	w.awaitDeployment("board-tensorboard", "is restored", func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 1 })
	w.Must(w.Client.Delete(w.Context(), broken))
	w.Must(w.Client.Delete(w.Context(), s))
	w.awaitDeployment("board-tensorboard", "exists again", func(now *appsv1.Deployment) bool { return now.UID != d.UID })
	w.Await("the Service exists again", func() error { return w.Get("board-tensorboard", &corev1.Service{}) })

	w.Must(w.Client.Delete(w.Context(), tb))
	w.Await("the Deployment no longer exists", func() error { return namespace.Gone(w.Get("board-tensorboard", &appsv1.Deployment{})) })
	w.Await("the Service no longer exists", func() error { return namespace.Gone(w.Get("board-tensorboard", &corev1.Service{})) })
}

// TestTensorBoardReportsBadInput verifies that a bad spec is refused, or reported in a condition that names the error.
func TestTensorBoardReportsBadInput(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	for text, change := range map[string]func(*tensorboard.TensorBoard){
		"spec.trainingLogFilesets[0]": func(tb *tensorboard.TensorBoard) { tb.Spec.TrainingLogFilesets[0] = "pvc/logs" },
		"spec.image":                  func(tb *tensorboard.TensorBoard) { tb.Spec.Image = "" },
		"a TensorBoard shows logs":    func(tb *tensorboard.TensorBoard) { tb.Spec.TrainingLogFilesets = nil },
		"at most 51":                  func(tb *tensorboard.TensorBoard) { tb.Name = strings.Repeat("x", 52) },
		"begin with a letter":         func(tb *tensorboard.TensorBoard) { tb.Name = "1" },
	} {
		tb := newBoard("refused")
		change(tb)
		tb.Namespace = w.Namespace
		if err := w.Client.Create(w.Context(), tb); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), text) {
			t.Errorf("the answer is %v, want %q", err, text)
		}
	}
	bad := newBoard("leaves")
	bad.Spec.TrainingLogFilesets[0] = "t9k://pvc/logs/../other"
	w.Create(bad)
	if tb := w.awaitBoard("leaves", tensorboard.ReasonInvalidSpec, "t9k://pvc/logs/../other"); tb.Status.Phase != tensorboard.Failed {
		t.Errorf("its phase is %s", tb.Status.Phase)
	}
	secrets := newBoard("secrets")
	secrets.Spec.TrainingLogFilesets = []string{"t9k://minio/one/bucket", "t9k://minio/two/bucket"}
	w.Create(secrets)
	w.awaitBoard("secrets", tensorboard.ReasonInvalidSpec, `"two"`)
	w.patchBoard("secrets", `{"spec":{"trainingLogFilesets":["t9k://minio/one/bucket"]}}`)
	w.awaitDeployment("secrets-tensorboard", "exists", func(*appsv1.Deployment) bool { return true })
	// The TensorBoard stops even if its spec has become invalid.
	w.patchBoard("secrets", `{"spec":{"suspend":true,"trainingLogFilesets":["t9k://minio/one/bucket","t9k://minio/two/bucket"]}}`)
	w.awaitDeployment("secrets-tensorboard", "is stopped", func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 0 })
}

// TestTensorBoardWaitsForATakenName verifies that a TensorBoard does not adopt an object of another owner, and starts
// when the name is free.
func TestTensorBoardWaitsForATakenName(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	foreign := w.foreignDeployment("board-tensorboard")
	w.Create(newBoard("board"))
	w.awaitBoard("board", tensorboard.ReasonNameTaken, `Deployment "board-tensorboard" exists and belongs to nobody`)
	now := w.awaitDeployment("board-tensorboard", "is unchanged", func(*appsv1.Deployment) bool { return true })
	if now.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("the Deployment of another owner was changed: %+v", now)
	}
	w.Must(w.Client.Delete(w.Context(), foreign))
	w.awaitBoard("board", tensorboard.ReasonStarting, "")
}

// foreignDeployment creates a Deployment that belongs to no TensorBoard.
func (w *world) foreignDeployment(name string) *appsv1.Deployment {
	w.Helper()
	labels := map[string]string{"app": "other"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: jobs.Role("w", 1, kubelet.Wait).Template.Spec},
	}}
	w.Create(d)
	return d
}

// runningBoard simulates the pod of a TensorBoard. The test sets the activity that the pod reports.
type runningBoard struct{ requests, quietSeconds atomic.Int64 }

func (r *runningBoard) ServeHTTP(out http.ResponseWriter, _ *http.Request) {
	_ = json.NewEncoder(out).Encode(board.Activity{Requests: r.requests.Load(), QuietSeconds: float64(r.quietSeconds.Load())})
}

// runBoard creates the pod that the Deployment of a TensorBoard would create, and serves the pod's activity at a
// loopback address, which is the pod's IP.
func (w *world) runBoard(name string) *runningBoard {
	w.Helper()
	r := &runningBoard{}
	listener, address := w.listenForActivity()
	server := &http.Server{Handler: r}
	w.Cleanup(func() { _ = server.Shutdown(context.Background()) })
	go func() { _ = server.Serve(listener) }()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name + "-pod", Labels: map[string]string{tensorboard.LabelTensorBoard: name}},
		Spec: jobs.Role("w", 1, kubelet.Wait).Template.Spec}
	w.Create(pod)
	w.UpdateStatus(pod, func() {
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	})
	return r
}

// listenForActivity listens at board.ActivityPort of a loopback address at which no other test of any process listens,
// and returns the address.
func (w *world) listenForActivity() (listener net.Listener, address string) {
	w.Helper()
	for last := 1; last < 255; last++ {
		address = fmt.Sprintf("127.0.71.%d", last)
		listener, err := net.Listen("tcp", fmt.Sprintf("%s:%d", address, board.ActivityPort))
		if !errors.Is(err, syscall.EADDRINUSE) {
			w.Must(err)
			return listener, address
		}
	}
	w.Fatalf("port %d is in use at all addresses", board.ActivityPort)
	return nil, ""
}

func (w *world) awaitIdle(name string, status metav1.ConditionStatus) tensorboard.Condition {
	w.Helper()
	var idle tensorboard.Condition
	w.Await(fmt.Sprintf("TensorBoard %s: idle is %s", name, status), func() error {
		tb := &tensorboard.TensorBoard{}
		if err := w.Get(name, tb); err != nil {
			return err
		}
		for _, c := range tb.Status.Conditions {
			if c.Type == tensorboard.Idle {
				idle = c
			}
		}
		if idle.Status != status {
			return fmt.Errorf("it is %+v", idle)
		}
		return nil
	})
	return idle
}

// TestIdleConditionFollowsReportedActivity verifies that the condition Idle follows the activity that the pod
// reports, and that an idle TensorBoard is suspended.
func TestIdleConditionFollowsReportedActivity(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig, "tensorBoards: {idleAfter: 1h, suspendAfter: 1ns}")
	w.Create(newBoard("board"))
	r := w.runBoard("board")
	w.awaitBoard("board", tensorboard.ReasonRunning, "")
	if c := w.awaitIdle("board", metav1.ConditionFalse); c.Reason != tensorboard.ReasonActive || c.LastProbeTime == nil {
		t.Errorf("active: %+v", c)
	}
	// The next probe is due in an hour; a change of the spec causes one at once.
	r.requests.Store(1)
	r.quietSeconds.Store(3600)
	w.patchBoard("board", `{"spec":{"image":"other"}}`)
	w.awaitBoard("board", tensorboard.ReasonSuspended, "")
	tb := &tensorboard.TensorBoard{}
	w.Must(w.Get("board", tb))
	if !board.Suspended(tb) {
		t.Error("the TensorBoard is not suspended")
	}
	if c := w.awaitIdle("board", metav1.ConditionFalse); c.Reason != tensorboard.ReasonSuspended || !strings.Contains(c.Message, "idle since") {
		t.Errorf("suspended: %+v", c)
	}
}

func newTraining(name string) *batch.TensorFlowTrainingJob {
	worker := batch.TrainingReplicaSpec{Type: "worker", Template: jobs.Role("worker", 1, kubelet.Run).Template}
	worker.Template.Spec.Containers[0].Name = "tensorflow"
	return &batch.TensorFlowTrainingJob{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batch.TensorFlowTrainingJobSpec{
		TrainingSpec: batch.TrainingSpec{TensorBoardSpec: &newBoard("").Spec},
		ReplicaSpecs: []batch.TrainingReplicaSpec{worker}}}
}

// awaitBoardReport waits until a job's status has the reason for its TensorBoard.
func (w *world) awaitBoardReport(name, reason string) *batch.TensorFlowTrainingJob {
	w.Helper()
	j := &batch.TensorFlowTrainingJob{}
	w.Await(fmt.Sprintf("job %s reports %s for its TensorBoard", name, reason), func() error {
		if err := w.Get(name, j); err != nil {
			return err
		}
		if d := j.Status.TensorBoard; d == nil || d.Reason != reason {
			return fmt.Errorf("it reports %+v", d)
		}
		return nil
	})
	return j
}

// TestJobReportsItsTensorBoard verifies that a job's status contains the state of its TensorBoard while the job runs
// and after it has succeeded, that a TensorBoard that cannot run does not affect the training, and that the TensorBoard
// is deleted with its job.
func TestJobReportsItsTensorBoard(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	w.Create(newBoard("taken"))
	long := strings.Repeat("x", 52)
	for name, reason := range map[string]string{
		"train": tensorboard.ReasonStarting, "taken": tensorboard.ReasonNameTaken, long: tensorboard.ReasonCreateRefused,
	} {
		w.Create(newTraining(name))
		j := w.awaitBoardReport(name, reason)
		if j.Status.TensorBoard.Ready || (j.Status.TensorBoard.Type == corev1.EventTypeWarning) != (reason != tensorboard.ReasonStarting) {
			t.Errorf("%s reports %+v", name, j.Status.TensorBoard)
		}
		w.Await("the job runs nevertheless", func() error {
			w.Must(w.Get(name, j))
			if j.Status.Phase != batch.JobRunning {
				return fmt.Errorf("it is %s", j.Status.Phase)
			}
			return nil
		})
		if d := j.Status.TensorBoard; d == nil || d.Reason != reason {
			t.Errorf("running, job %s reports %+v", name, d)
		}
	}
	tb := &tensorboard.TensorBoard{}
	w.Must(w.Get("taken", tb))
	if len(tb.OwnerReferences) > 0 {
		t.Errorf("a job has adopted a TensorBoard: %+v", tb.OwnerReferences)
	}
	// The job reports that the TensorBoard is ready, and keeps the report after its own end.
	w.runBoard("train")
	j := w.awaitBoardReport("train", tensorboard.ReasonRunning)
	if d := j.Status.TensorBoard; !d.Ready || d.Dependent.Name != "train" || d.Dependent.Kind != "TensorBoard" {
		t.Errorf("it reports %+v", d)
	}
	w.Must(kubelet.End(t.Context(), w.Core, w.pods()["train-worker-0"], 0))
	w.Await("the job has succeeded, and reports its TensorBoard", func() error {
		w.Must(w.Get("train", j))
		if j.Status.Phase != batch.JobSucceeded || j.Status.TensorBoard == nil || !j.Status.TensorBoard.Ready {
			return fmt.Errorf("it is %s and reports %+v", j.Status.Phase, j.Status.TensorBoard)
		}
		return nil
	})
	w.Must(w.Client.Delete(w.Context(), j))
	w.Await("the TensorBoard no longer exists", func() error { return namespace.Gone(w.Get("train", &tensorboard.TensorBoard{})) })
}

// useTensorBoards makes the operator do everything it can do for TensorBoards.
func (w *world) useTensorBoards() {
	w.Helper()
	w.foreignDeployment("named-tensorboard")
	w.Create(newBoard("named"))
	w.awaitBoard("named", tensorboard.ReasonNameTaken, "")
	w.Create(newTraining("with-board"))
	w.awaitBoardReport("with-board", tensorboard.ReasonStarting)
	pytorch := &batch.PyTorchTrainingJob{ObjectMeta: metav1.ObjectMeta{Name: "with-board-torch"}, Spec: batch.PyTorchTrainingJobSpec{
		TrainingSpec: batch.TrainingSpec{TensorBoardSpec: &newBoard("").Spec},
		ReplicaSpecs: []batch.PyTorchReplicaSpec{{TrainingReplicaSpec: batch.TrainingReplicaSpec{Type: "worker", Template: jobs.Role("worker", 1, kubelet.Run).Template}}}}}
	w.Create(pytorch)
	w.Create(newBoard("idle"))
	r := w.runBoard("idle")
	r.requests.Store(1)
	r.quietSeconds.Store(1e6)
	w.Await("the idle TensorBoard is suspended", func() error {
		tb := &tensorboard.TensorBoard{}
		w.Must(w.Get("idle", tb))
		if !board.Suspended(tb) {
			return errors.New("it is not")
		}
		return nil
	})
	w.awaitDeployment("idle-tensorboard", "is stopped", func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 0 })
}

// TestTensorBoardCommandExplainsFailures verifies that t9k tensorboard reports why it cannot open a TensorBoard, and
// what the user can do.
func TestTensorBoardCommandExplainsFailures(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	fails := func(wanted string, args ...string) {
		t.Helper()
		w.contains("t9k tensorboard "+strings.Join(args, " "), w.fails(append([]string{"tensorboard"}, args...)...), wanted)
	}
	fails(`no TensorBoard "absent"`, "absent")
	fails("name a job")

	w.Create(jobs.New("generic", jobs.Role("w", 1, kubelet.Run)))
	fails("jobs of this kind have none", "generic")
	without := newTraining("without")
	without.Spec.TensorBoardSpec = nil
	w.Create(without)
	fails("it was created without tensorboardSpec", "tftj/without")

	w.Create(newBoard("taken"))
	w.Create(newTraining("taken"))
	w.awaitBoardReport("taken", tensorboard.ReasonNameTaken)
	fails("does not belong to this job", "tftj/taken")
	w.contains("t9k describe tftj/taken", w.t9k("describe", "tftj/taken"), `NameTaken: TensorBoard "taken" exists and does not belong to this job`)

	suspended := newBoard("suspended")
	yes := true
	suspended.Spec.Suspend = &yes
	w.Create(suspended)
	fails(`"t9k tensorboard suspended --resume" starts it again`, "suspended")
	fails("tensorboard/suspended does not answer after 1s", "suspended", "--resume", "--timeout=1s")
	now := &tensorboard.TensorBoard{}
	w.Must(w.Get("suspended", now))
	if board.Suspended(now) {
		t.Error("it was not resumed")
	}
	w.awaitBoard("taken", tensorboard.ReasonStarting, "")
	if got := w.t9k("__complete", "tensorboard", ""); !strings.HasPrefix(got, "suspended\t") || !strings.Contains(got, "\ntaken\tPending\n") || strings.Contains(got, "generic") {
		t.Errorf("completion of TensorBoards:\n%s", got)
	}
	if got := w.t9k("__complete", "tensorboard", "taken", ""); strings.Contains(got, "suspended") {
		t.Errorf("completion of a second TensorBoard:\n%s", got)
	}
	fails("tensorboard/taken: It is being started.", "taken", "--timeout=5s")
}
