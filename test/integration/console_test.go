package integration

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
	"tensorstack.dev/batch/test/kit/program"
)

// browser is an HTTP client of the console.
type browser struct {
	*world
	http.Client
	base string
}

// browse starts t9k ui and opens the address that it prints.
func (w *world) browse(args ...string) *browser {
	w.Helper()
	call := w.start("", append([]string{"ui", "--no-browser"}, args...)...)
	call.awaitOutput("token=")
	first := strings.TrimSpace(call.out.String())
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.Fatal(err)
	}
	b := &browser{world: w, Client: http.Client{Jar: jar}, base: first[:strings.Index(first, "/?")]}
	b.opens(first)
	return b
}

// opens returns the HTML of the page at an address, and fails the test unless the status is 200.
func (b *browser) opens(address string) string {
	b.Helper()
	answer, err := b.Get(address)
	if err != nil {
		b.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		b.Fatalf("%s: %s, %v: %s", address, answer.Status, err, body)
	}
	return string(body)
}

// page returns the HTML of the page at a path.
func (b *browser) page(path string) string {
	b.Helper()
	return b.opens(b.base + path)
}

// listen returns the log of the events that the console pushes to the page at a path.
func (b *browser) listen(path string) *program.Log {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, b.base+path, nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	answer, err := b.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { answer.Body.Close() })
	pushed, _ := collect(answer.Body)
	return pushed
}

// collect reads a stream line by line in the background. lines grows meanwhile, and ended is closed when the stream
// ends.
func collect(stream io.Reader) (lines *program.Log, ended <-chan struct{}) {
	lines = &program.Log{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		in := bufio.NewReader(stream)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = lines.Write([]byte(line))
		}
	}()
	return lines, done
}

func (b *browser) awaitPush(pushed *program.Log, texts ...string) {
	b.Helper()
	b.Await(fmt.Sprintf("%q is pushed", texts), func() error {
		for _, text := range texts {
			if !strings.Contains(pushed.String(), text) {
				return errors.New("it has pushed:\n" + pushed.String())
			}
		}
		return nil
	})
}

// posts submits a form of a page, as its button does, and returns the final page. It ends the test unless the final
// status is 200.
func (b *browser) posts(path string, form url.Values) string {
	b.Helper()
	code, body := b.presses(path, form)
	if code != http.StatusOK {
		b.Fatalf("%s: %d: %s", path, code, body)
	}
	return body
}

// presses submits a form of a page, as its button does, follows redirects, and returns the final answer.
func (b *browser) presses(path string, form url.Values) (code int, body string) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, b.base+path, strings.NewReader(form.Encode()))
	b.Must(err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", b.base)
	answer, err := b.Do(r)
	b.Must(err)
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	b.Must(err)
	return answer.StatusCode, string(data)
}

func TestConsolePushesWhatChanges(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	b := w.browse()
	list := "/?ns=" + w.Namespace
	w.contains("the empty list", b.page(list), "No job")
	rows := b.listen(list)
	b.awaitPush(rows, "event: patch")
	w.Create(jobs.New("seen", jobs.Role("w", 2, kubelet.Run)))
	path := "/jobs/" + w.Namespace + "/genericjob/seen"
	b.awaitPush(rows, path, "busy", "2/2")

	w.contains("the page of the job", b.page(path), "<bdi>seen</bdi>", "All replicas run.", "w-0", "w-1", `class="s running"`, "t9k pause -n "+w.Namespace+" genericjob/seen")
	w.contains("its manifest", b.page(path+"?tab=manifest"), "kind: GenericJob", "replicaSpecs:")
	w.contains("its events", b.page(path+"?tab=events"), "ReplicasRunning")
	job := b.listen(path)
	w.contains("the page after the pause", b.posts(path+"/pause", nil), "genericjob/seen is pausing.")
	w.awaitPhase("seen", batch.JobPaused)
	b.awaitPush(job, "Paused", "do-resume")
	b.awaitPush(rows, "Paused")
	w.contains("the list after the copy", b.posts(path+"/rerun", url.Values{"name": {"seen-again"}}), "seen-again was created")
	w.awaitPhase("seen-again", batch.JobRunning)
	w.contains("the question", b.page("/act?verb=delete&job="+url.QueryEscape(path)), "Delete 1 job?", "t9k delete -n "+w.Namespace+" genericjob/seen")
	b.posts("/act", url.Values{"verb": {"delete"}, "job": {path}})
	b.awaitPush(job, "It is gone")
}

// TestConsoleHasTheRightsOfItsUser verifies that a user with rights in one namespace sees this namespace and a note
// about what the page leaves out, and can do no more than with kubectl.
func TestConsoleHasTheRightsOfItsUser(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	w.Create(jobs.New("seen", jobs.Role("w", 1, kubelet.Run)))
	w.Create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "look"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"batch.tensorstack.dev"}, Resources: []string{"genericjobs"}, Verbs: []string{"get", "list", "watch"}},
	}})
	w.Create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "look"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "look"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "alice"}}})
	w.awaitPhase("seen", batch.JobRunning)
	w.Await("alice has her rights", func() error {
		if call := w.start("", "get", "--as=alice", "gj/seen"); <-call.code != 0 {
			return errors.New(call.err.String())
		}
		return nil
	})
	b := w.browse("--as=alice")
	path := "/jobs/" + w.Namespace + "/genericjob/seen"
	w.contains("the list", b.page("/"), path, "You may not list GenericJobs of all namespaces: only namespace "+w.Namespace+" is shown. t9k ui -n NAMESPACE shows another one.",
		"You may not list PyTorchTrainingJobs")
	w.contains("the job", b.page(path), "All replicas run.", "You may not list pods and events.")
	w.contains("nodes", b.page("/nodes"), "You may not list nodes and pods.")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.base+path+"/pause", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Origin", b.base)
	answer, err := b.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	if answer.StatusCode != http.StatusConflict {
		t.Errorf("a pause without the right to: %s", answer.Status)
	}
	w.contains("a pause without the right to", string(body), "forbidden")
}
