package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/testing/require"
)

// serve runs a server in a pod behind a Service with the same name, and waits until the server accepts connections.
func (s *space) serve(name string, port int32, command ...string) {
	s.Helper()
	labels, grace := map[string]string{"app": name}, int64(0)
	c := corev1.Container{Name: "main", Image: "server", Command: command,
		ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(port)}}}}
	spec := corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{c}}
	s.Mount(&spec)
	s.Create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: spec})
	s.Create(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Selector: labels, Ports: []corev1.ServicePort{{Port: port}}}})
	s.pod(name, "serves", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].Ready
	})
}

// write writes a file to the gate, and creates its directory.
func (s *space) write(name, text string) {
	s.Helper()
	if err := os.MkdirAll(filepath.Dir(s.File(name)), 0o755); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(s.File(name), []byte(text), 0o644); err != nil {
		s.Fatal(err)
	}
}

// buildStore compiles the object store of testdata/s3server to a file in the gate.
func (s *space) buildStore() {
	s.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		require.Missing(s.T, "go")
	}
	const module = "testdata/s3server"
	download := exec.CommandContext(s.Context(), "go", "mod", "download")
	download.Dir = module
	if out, err := download.CombinedOutput(); err != nil {
		require.Missing(s.T, fmt.Sprintf("the modules of %s: %s", module, out))
	}
	build := exec.CommandContext(s.Context(), "go", "build", "-o", s.File("s3server"), ".")
	build.Dir = module
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		s.Fatalf("building the object store: %v\n%s", err, out)
	}
}

// TestTensorBoardReadsAllSources verifies that one TensorBoard shows volumes, object stores and files fetched over
// HTTP.
func TestTensorBoardReadsAllSources(t *testing.T) {
	requireStandIn(t)
	s := newSpace(t)
	s.buildStore()
	s.write("volume/a/events.out.tfevents.1", "1")
	s.write("store/runs/7/events.out.tfevents.2", "22")
	s.write("store/other/events.out.tfevents.3", "333")
	s.write("web/events.out.tfevents.4", "4444")
	s.claim("logs")
	s.serve("store", 9000, "/gate/s3server", "--access-key=key", "--bucket=bucket", "--dir=/gate/store")
	s.serve("web", 8000, "python3", "-m", "http.server", "--directory", "/gate/web", "8000")
	s.startVisitor()
	s.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "keys"}, StringData: map[string]string{
		"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_ENDPOINT_URL": "http://store." + s.Namespace + ".svc:9000"}})
	s.Create(&tensorboard.TensorBoard{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: tensorboard.TensorBoardSpec{
		Image:               "tensorboard",
		TrainingLogFilesets: []string{"t9k://minio/keys/bucket/runs/7"},
		LogDir: &tensorboard.LogDir{
			PVC:  []tensorboard.PVCSource{{Name: "logs", SubPath: []string{"volume/a", "volume/later"}}},
			S3:   &tensorboard.S3Source{SecretRef: tensorboard.SecretRef{Name: "keys"}, URI: []string{"s3://bucket/other"}},
			HTTP: &tensorboard.HTTPSource{URL: []string{"http://web:8000/events.out.tfevents.4"}},
		}}})
	tb := s.awaitBoardReady("all")
	got := fmt.Sprint(s.files(s.visit(tb.Status.URL + "files")))
	want := fmt.Sprint(map[string]map[string]int{
		"logs/volume/a": {"events.out.tfevents.1": 1}, "logs/volume/later": {},
		"bucket/runs/7": {"events.out.tfevents.2": 2}, "bucket/other": {"events.out.tfevents.3": 3},
		"web": {"000-events.out.tfevents.4": 4},
	})
	if got != want {
		t.Errorf("the TensorBoard shows\n%s, want\n%s", got, want)
	}
	// Files that the training writes later appear too.
	s.write("volume/later/events.out.tfevents.5", "55555")
	if later := s.files(s.visit(tb.Status.URL + "files"))["logs/volume/later"]; later["events.out.tfevents.5"] != 5 {
		t.Errorf("it shows %v of a directory that was created later", later)
	}
}

// TestTensorBoardReportsMissingObjects verifies that a TensorBoard reports a missing claim, a missing Secret, or a URL
// that it cannot fetch, and that it starts when the missing claim is created.
func TestTensorBoardReportsMissingObjects(t *testing.T) {
	requireStandIn(t)
	s := newSpace(t)
	s.startVisitor()
	spec := func(fileset string) tensorboard.TensorBoardSpec {
		return tensorboard.TensorBoardSpec{Image: "tensorboard", TrainingLogFilesets: []string{fileset}}
	}
	fetch := tensorboard.TensorBoardSpec{Image: "tensorboard", LogDir: &tensorboard.LogDir{HTTP: &tensorboard.HTTPSource{URL: []string{"http://127.0.0.1:1/x"}}}}
	for name, spec := range map[string]tensorboard.TensorBoardSpec{"claim": spec("t9k://pvc/logs"), "secret": spec("t9k://minio/keys/bucket"), "fetch": fetch} {
		s.Create(&tensorboard.TensorBoard{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
	}
	s.awaitBoardReason("claim", tensorboard.ReasonUnschedulable, `persistentvolumeclaim "logs" not found`)
	s.awaitBoardReason("secret", tensorboard.ReasonNotStarted, `secret "keys" not found`)
	s.awaitBoardReason("fetch", tensorboard.ReasonFailing, "fetching http://127.0.0.1:1/x: ")
	s.claim("logs")
	s.awaitBoardReady("claim")
}

// exampleTensorBoard verifies that the TensorBoard shows the job's logs after the job has ended.
func exampleTensorBoard(s *space) {
	if _, err := exec.LookPath("python3"); err != nil {
		require.Missing(s.T, "python3")
	}
	s.claim("logs")
	s.startVisitor()
	j := &batch.TensorFlowTrainingJob{}
	s.readExample("tensorboard", j)
	s.Create(j)
	awaitPhase(s, j, batch.JobSucceeded)
	s.awaitLog("tensorboard-worker-0", "tensorflow", "logged\n")
	tb := s.awaitBoardReady("tensorboard")
	if files := s.files(s.visit(tb.Status.URL + "files"))["."]; files["events.out.tfevents.0"] != 5 {
		s.Errorf("the TensorBoard shows %v", files)
	}
}
