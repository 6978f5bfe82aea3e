package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
	"tensorstack.dev/batch/test/kit/program"
)

// talkers are the replicas of a job. No operator runs: the test creates their pods and writes their logs.
type talkers struct {
	*world
	*kubelet.Logs
	node string
	job  *batch.GenericJob
	// init holds the init containers of the pods.
	init []corev1.Container
	// begin is the time to which the times of lines are relative.
	begin time.Time
}

// startTalkers creates a job and the node of its pods, and serves the pods' logs. The test creates the pods.
func (w *world) startTalkers(name string, replicas int32) *talkers {
	w.Helper()
	t := &talkers{world: w, node: "talks-" + w.Namespace, begin: time.Now().Add(-time.Hour).Truncate(time.Second)}
	t.Logs = kubelet.ServeLogs(w.T, w.Core, w.Env.Dir, t.node)
	t.job = jobs.New(name, jobs.Role("w", replicas, kubelet.Run))
	w.Create(t.job)
	return t
}

// start creates the pod of an attempt of a replica and waits until the pod runs.
func (t *talkers) start(rank, attempt int) *corev1.Pod {
	t.Helper()
	p := t.create(rank, attempt)
	t.awaitRunning(p.Name)
	return p
}

func (t *talkers) create(rank, attempt int) *corev1.Pod {
	t.Helper()
	spec := jobs.Role("w", 1, kubelet.Run).Template.Spec
	spec.NodeSelector, spec.InitContainers = map[string]string{kubelet.NodeKey: t.node}, t.init
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-w-%d", t.job.Name, rank), Labels: map[string]string{
		batch.LabelJobName: t.job.Name, batch.LabelJobKind: "GenericJob", batch.LabelReplicaType: "w", batch.LabelReplicaRank: strconv.Itoa(rank), batch.LabelReplicaAttempt: strconv.Itoa(attempt)},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: batch.GroupVersion.String(), Kind: "GenericJob", Name: t.job.Name, UID: t.job.UID, Controller: new(true)}}}, Spec: spec}
	t.Create(p)
	return p
}

func (t *talkers) awaitRunning(pod string) {
	t.Helper()
	t.Await("pod "+pod+" runs", func() error {
		p := &corev1.Pod{}
		if err := t.Get(pod, p); err != nil || p.Status.Phase != corev1.PodRunning {
			return errors.Join(err, errors.New(string(p.Status.Phase)))
		}
		return nil
	})
}

// says adds a line to the log of a replica. The line's time is begin plus after, in milliseconds.
func (t *talkers) says(rank, after int, text string) {
	t.Write(t.Namespace, fmt.Sprintf("%s-w-%d", t.job.Name, rank), t.begin.Add(time.Duration(after)*time.Millisecond), text)
}

// path returns the path of the job's logs, followed by query.
func (t *talkers) path(query string) string {
	return "/jobs/" + t.Namespace + "/genericjob/" + t.job.Name + "/logs" + query
}

// heard is a line that a stream has sent. At is its time in Unix milliseconds.
type heard struct {
	Replica string `json:"r"`
	Text    string `json:"t"`
	At      int64  `json:"a"`
}

// linesOf returns the lines that a stream has sent, and the identifier of its last event.
func (w *world) linesOf(pushed *program.Log) (all []heard, id string) {
	w.Helper()
	for event := range strings.SplitSeq(pushed.String(), "\n\n") {
		lines := false
		for field := range strings.SplitSeq(event, "\n") {
			name, value, _ := strings.Cut(field, ": ")
			switch {
			case name == "id":
				id = value
			case name == "event":
				lines = value == "lines"
			case name == "data" && lines:
				var part []heard
				w.Must(json.Unmarshal([]byte(value), &part))
				all = append(all, part...)
			}
		}
	}
	return all, id
}

// awaitLines waits until a stream has sent n lines, and reports an error if it has sent more.
func (w *world) awaitLines(pushed *program.Log, n int) (all []heard, id string) {
	w.Helper()
	w.Await(fmt.Sprintf("%d lines are sent", n), func() error {
		if all, id = w.linesOf(pushed); len(all) < n {
			return fmt.Errorf("there are %d: %s", len(all), pushed.String()[max(0, len(pushed.String())-2000):])
		}
		return nil
	})
	if len(all) > n {
		w.Errorf("%d lines are sent, want %d", len(all), n)
	}
	return all, id
}

func wordsOf(all []heard) []string {
	got := make([]string, len(all))
	for i := range all {
		got[i] = all[i].Text
	}
	return got
}

// awaitPods waits until a page shows the words of text. Tests use it to wait until the console knows the pods of a job.
func (p *person) awaitPods(path, text string) {
	p.Helper()
	p.Await(path+" shows "+text, func() error { return p.shows(path, text, strings.NewReplacer()) })
}

// readLogs is the rule that grants the right to read logs.
var readLogs = rule("", "pods/log", "get")

// TestConsoleMergesLogsOfManyReplicas verifies that the lines of up to 100 replicas arrive in the order of their times,
// that failed replicas have precedence if there are more replicas, and that the stream says what it leaves out. It also
// verifies how queries select replicas, and which queries are refused.
func TestConsoleMergesLogsOfManyReplicas(t *testing.T) {
	w := newWorld(t)
	const replicas, failed, shown, each = 120, 117, 100, 7
	job := w.startTalkers("many", replicas)
	for rank := range replicas {
		job.create(rank, 0)
		for n := range each {
			job.says(rank, n*1000+rank, fmt.Sprintf("line %d of %d", n, rank))
		}
	}
	for rank := range replicas {
		job.awaitRunning(fmt.Sprintf("many-w-%d", rank))
	}
	w.finish(fmt.Sprintf("many-w-%d", failed), 3)
	job.End(w.Namespace, fmt.Sprintf("many-w-%d", failed))
	viewer := w.person(w.startConsole(), "viewer", append(slices.Clone(look), readLogs)...)
	viewer.awaitPods(job.path("?state=failed"), "of&#32;117")
	viewer.awaitPods(job.path(""), "100&#32;of&#32;120&#32;replicas&#32;are&#32;shown")

	pushed, _ := viewer.listen(job.path("/stream"))
	all, _ := w.awaitLines(pushed, shown*each)
	if !slices.IsSortedFunc(all, func(a, b heard) int { return int(a.At - b.At) }) {
		t.Errorf("the lines are not in the order of their times: %v", wordsOf(all))
	}
	names := map[string]bool{}
	for _, l := range all {
		names[l.Replica] = true
	}
	if len(names) != shown || !names["w-117"] || !names["w-0"] || names["w-119"] {
		t.Errorf("%d replicas are shown, the failed one: %t", len(names), names["w-117"])
	}
	w.contains("what the stream says", pushed.String(), `event: note`, "100 of 120 replicas are shown: failed ones first, then by role and rank.")
	w.finish("many-w-119", 1)
	job.End(w.Namespace, "many-w-119")
	w.Await("the stream says that a replica has failed that is not shown", func() error {
		if !strings.Contains(pushed.String(), "One that has failed is not among them.") {
			return errors.New(pushed.String()[len(pushed.String())-500:])
		}
		return nil
	})
	job.says(5, 60_000, "the last line")
	if all, _ := w.awaitLines(pushed, shown*each+1); all[len(all)-1] != (heard{"w-5", "the last line", job.begin.Add(time.Minute).UnixMilli()}) {
		t.Errorf("the last line: %+v", all[len(all)-1])
	}
	for query, want := range map[string]int{"?ranks=110-112,118": 4, "?role=w&ranks=7": 1, "?replica=w-7": 1, "?ranks=7&state=failed": 0, "?ranks=117&state=failed": 1, "?state=running&ranks=116-118": 2} {
		some, _ := viewer.listen(job.path("/stream" + query))
		lines, _ := w.awaitLines(some, want*each)
		if want == 1 && lines[0].Replica != "" {
			t.Errorf("%s: one replica is named before each line: %+v", query, lines[0])
		}
	}
	for query, text := range map[string]string{"?ranks=a": "is no list of ranks", "?ranks=3-1": "is no list of ranks", "?role=ps": `The job has no role "ps"; it has: w.`, "?replica=x": "names no replica"} {
		for _, of := range []string{"/stream", "/download"} {
			if code, body := viewer.call(http.MethodGet, job.path(of+query), nil); code != http.StatusBadRequest || !strings.Contains(body, text) {
				t.Errorf("%s%s: %d %s", of, query, code, body)
			}
		}
	}
}

// TestConsoleLogsGoOnAfterALostConnection verifies that a client that reconnects with the identifier of the last event
// receives the lines after it.
func TestConsoleLogsGoOnAfterALostConnection(t *testing.T) {
	w := newWorld(t)
	job := w.startTalkers("goes-on", 3)
	for rank := range 2 {
		job.start(rank, 0)
	}
	viewer := w.person(w.startConsole(), "viewer", append(slices.Clone(look), readLogs)...)
	viewer.awaitPods(job.path(""), "of&#32;2&#32;replicas")
	sent, after := []string{}, ""
	n := 0
	say := func(rank int, times ...int) {
		for _, at := range times {
			job.says(rank, at, fmt.Sprintf("line %d", n)) // many lines have the same time
			n++
		}
	}
	for round := range 4 {
		say(0, round, round, round)
		say(1, round, round)
		if round == 2 { // a replica starts while no client is connected
			job.start(2, 0)
			say(2, 1, 1)
		}
		pushed, _ := viewer.listen(job.path("/stream?after=" + url.QueryEscape(after)))
		w.awaitLines(pushed, n-len(sent))
		say(1, round)
		all, id := w.awaitLines(pushed, n-len(sent))
		sent, after = append(sent, wordsOf(all)...), id
	}
	slices.Sort(sent)
	if got := len(slices.Compact(sent)); got != n {
		t.Errorf("%d different lines of %d", got, n)
	}
	pushed, _ := viewer.listen(job.path("/stream?after=a.b.c~~1.2~%00")) // an invalid identifier means the beginning
	w.awaitLines(pushed, n)
}

// TestConsoleFollowsManyAttempts verifies that a stream shows every attempt of every replica, however many there are.
func TestConsoleFollowsManyAttempts(t *testing.T) {
	w := newWorld(t)
	const replicas, attempts = 8, 14
	job := w.startTalkers("restarts", replicas)
	viewer := w.person(w.startConsole(), "viewer", append(slices.Clone(look), readLogs)...)
	viewer.awaitPods(job.path(""), "There&#32;is&#32;no&#32;pod")
	pushed, ended := viewer.listen(job.path("/stream"))
	lines := 0
	for attempt := range attempts {
		for rank := range replicas {
			job.create(rank, attempt)
			job.says(rank, attempt, fmt.Sprintf("rank %d attempt %d", rank, attempt))
		}
		for rank := range replicas {
			job.awaitRunning(fmt.Sprintf("restarts-w-%d", rank))
		}
		lines += replicas
		if attempt > 0 {
			lines += replicas // a line for each replica names the attempt
		}
		w.awaitLines(pushed, lines)
		for rank := range replicas {
			name := fmt.Sprintf("restarts-w-%d", rank)
			job.End(w.Namespace, name)
			w.finish(name, 1)
			w.Must(w.Client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}}))
			job.Forget(w.Namespace, name)
		}
		w.awaitNoPods()
	}
	w.contains("what is sent", pushed.String(), "rank 7 attempt 13", "--- attempt 14 ---")
	w.Must(w.Client.Delete(t.Context(), job.job))
	w.ends("the stream of a job that is deleted", ended)
	w.contains("what is sent", pushed.String(), "the job was deleted")
}

// TestConsoleShowsTheLogOfAFailedInitContainer verifies that the console shows the log of the failed init container
// for a replica whose main container never started.
func TestConsoleShowsTheLogOfAFailedInitContainer(t *testing.T) {
	w := newWorld(t)
	job := w.startTalkers("setup", 1)
	job.init = []corev1.Container{{Name: "fetch", Image: "example.org/none"}}
	viewer := w.person(w.startConsole(), "viewer", append(slices.Clone(look), readLogs)...)
	job.start(0, 0)
	w.Await("the init container has failed", func() error {
		p := &corev1.Pod{}
		if err := w.Get("setup-w-0", p); err != nil {
			return err
		}
		now := metav1.Now()
		p.Status.Phase = corev1.PodFailed
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "fetch", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 4, Reason: "Error", StartedAt: now, FinishedAt: now}}}}
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}
		_, err := w.Core.CoreV1().Pods(w.Namespace).UpdateStatus(t.Context(), p, metav1.UpdateOptions{})
		return err
	})
	job.says(0, 0, "no data")
	job.End(w.Namespace, "setup-w-0")
	viewer.awaitPods(job.path("?state=failed"), "w-0/fetch")
	pushed, _ := viewer.listen(job.path("/stream"))
	if all, _ := w.awaitLines(pushed, 1); all[0].Replica != "w-0/fetch" || all[0].Text != "no data" {
		t.Errorf("the stream sends %+v", all)
	}
}

// TestConsoleShowsLogsBesideASilentNode verifies that a request for a log that no node answers does not delay the
// logs of other pods.
func TestConsoleShowsLogsBesideASilentNode(t *testing.T) {
	w := newWorld(t)
	job := w.startTalkers("silent", 3)
	for rank := range 3 {
		job.start(rank, 0)
		job.says(rank, 3-rank, fmt.Sprintf("rank %d", rank))
	}
	job.Silence(w.Namespace, "silent-w-1")
	viewer := w.person(w.startConsole(), "viewer", append(slices.Clone(look), readLogs)...)
	viewer.awaitPods(job.path(""), "of&#32;3&#32;replicas")
	pushed, ended := viewer.listen(job.path("/stream"))
	if all, _ := w.awaitLines(pushed, 2); !slices.Equal(wordsOf(all), []string{"rank 2", "rank 0"}) {
		t.Errorf("the lines are %q", wordsOf(all))
	}
	job.says(0, 10, "later")
	w.awaitLines(pushed, 3)
	w.Must(w.Client.Delete(t.Context(), job.job))
	for rank := range 3 {
		w.Must(client.IgnoreNotFound(w.Client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: fmt.Sprintf("silent-w-%d", rank)}})))
	}
	w.ends("the stream, although the node is silent,", ended)
}

// TestConsoleLogsAreOfOneJob verifies that the logs of a deleted job and of a later job with the same name are not
// mixed: the stream of the deleted job ends, and the page then shows the logs of the later job.
func TestConsoleLogsAreOfOneJob(t *testing.T) {
	w := newWorld(t)
	job := w.startTalkers("again", 1)
	job.start(0, 0)
	job.says(0, 0, "of the first job")
	viewer := w.person(w.startConsole(), "viewer", append(slices.Clone(look), readLogs)...)
	viewer.awaitPods(job.path(""), "of&#32;the&#32;first")
	pushed, ended := viewer.listen(job.path("/stream"))
	w.awaitLines(pushed, 1)
	w.Must(w.Client.Delete(t.Context(), job.job))
	w.Must(client.IgnoreNotFound(w.Client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "again-w-0"}})))
	w.awaitGone("again-w-0", &corev1.Pod{})
	job.Forget(w.Namespace, "again-w-0")
	job.job = jobs.New("again", jobs.Role("w", 1, kubelet.Run))
	w.Create(job.job)
	job.start(0, 0)
	job.says(0, 0, "of the second job")
	w.ends("the stream of the first job", ended)
	w.contains("what is sent", pushed.String(), "the job was deleted")
	if strings.Contains(pushed.String(), "of the second job") {
		t.Errorf("the logs of two jobs are mixed: %s", pushed.String())
	}
	viewer.awaitPods(job.path(""), "of&#32;the&#32;second")
}

// TestConsoleLogsNeedTheRight verifies that a stream does not start for a user without the right to read logs, and that
// the answer says so.
func TestConsoleLogsNeedTheRight(t *testing.T) {
	w := newWorld(t)
	job := w.startTalkers("secret", 1)
	job.start(0, 0)
	job.says(0, 0, "nobody else reads this")
	viewer := w.person(w.startConsole(), "viewer", look...)
	viewer.awaitPods("/", "secret")
	if code, body := viewer.call(http.MethodGet, job.path("/stream"), nil); code != http.StatusForbidden || strings.Contains(body, "nobody else") {
		t.Errorf("the stream: %d %s", code, body)
	}
	if code, _ := viewer.call(http.MethodHead, job.path("/stream"), nil); code != http.StatusForbidden {
		t.Errorf("the script, which asks why: %d", code)
	}
	reader := w.person(viewer.installation, "reader", append(slices.Clone(look), readLogs)...)
	reader.awaitPods(job.path(""), "nobody&#32;else")
	for path, want := range map[string]int{job.path("/stream"): http.StatusOK, strings.Replace(job.path("/stream"), "/secret/", "/other/", 1): http.StatusNotFound, job.path("/stream?ranks=x"): http.StatusBadRequest} {
		if code, _ := reader.call(http.MethodHead, path, nil); code != want {
			t.Errorf("the script asks for %s: %d, want %d", path, code, want)
		}
	}
	for _, path := range []string{"", "/download"} {
		viewer.awaitPods(job.path(path), "you")
		if _, body := viewer.call(http.MethodGet, job.path(path), nil); strings.Contains(body, "nobody else") {
			t.Errorf("%q: %s", path, body)
		}
	}
}
