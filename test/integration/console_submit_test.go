package integration

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// submitted is the manifest of a job for the page Submit. NAME stands for the job's name.
const submitted = `apiVersion: batch.tensorstack.dev/v1beta1
kind: GenericJob
metadata:
  name: NAME
spec:
  replicaSpecs:
    - type: w
      replicas: 2
      template:
        spec:
          containers: [{name: main, image: busybox, command: [run]}]
`

func submittedAs(name string) string { return strings.ReplaceAll(submitted, "NAME", name) }

// submits submits the job by-NAME as a person and verifies the result. If want is "done", the console redirects to
// the page of the job. If it is "no such job", the console redirects to the list, because the person may not see the
// created job. If it is "forbidden", no job is created.
func (p *person) submits(name, want string) {
	p.Helper()
	form := url.Values{"manifest": {submittedAs("by-" + name)}, "ns": {p.Namespace}, "step": {"run"}}
	path := "/jobs/" + p.Namespace + "/genericjob/by-" + name
	if want == "forbidden" {
		code, body := p.call(http.MethodPost, "/submit", form)
		if code != http.StatusConflict || !strings.Contains(body, "forbidden") || !strings.Contains(body, p.name) {
			p.Errorf("submitting without the right to: %d %s", code, body)
		}
		p.absent("by-" + name)
		return
	}
	to := map[string]string{"done": path, "no such job": "/?q=by-" + name}[want]
	p.Await(name+" submits a job", func() error {
		answer := p.request(http.MethodPost, "/submit", form)
		defer answer.Body.Close()
		if got := answer.Header.Get("Location"); answer.StatusCode != http.StatusSeeOther || got != to {
			body, _ := io.ReadAll(answer.Body)
			return fmt.Errorf("%s, to %q: %s", answer.Status, got, body)
		}
		return nil
	})
	w := &world{p.Beside(p.Namespace)}
	w.job("by-" + name)
}

// absent verifies that there is no job with the name.
func (w *world) absent(name string) {
	w.Helper()
	err := w.Client.Get(w.Context(), types.NamespacedName{Namespace: w.Namespace, Name: name}, &batch.GenericJob{})
	if !apierrors.IsNotFound(err) {
		w.Errorf("there is a job %s: %v", name, err)
	}
}

// submits posts a manifest to the page Submit, follows redirects, and returns the final answer, with the path and query
// of its page. step is check or run.
func (b *browser) submits(step, namespace, text string) (code int, path, body string) {
	b.Helper()
	form := url.Values{"manifest": {text}, "ns": {namespace}, "step": {step}}
	r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, b.base+"/submit", strings.NewReader(form.Encode()))
	b.Must(err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", b.base)
	answer, err := b.Do(r)
	b.Must(err)
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	b.Must(err)
	return answer.StatusCode, answer.Request.URL.RequestURI(), string(data)
}

// TestConsoleSubmits verifies that the page Submit checks manifests, creates either all objects of a manifest or
// none, and reports whether the jobs' queues would let them start.
func TestConsoleSubmits(t *testing.T) {
	w := newWorld(t)
	open, closed := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}, &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace + "-shut"}, Spec: scheduling.QueueSpec{Closed: true}}
	for _, q := range []client.Object{open, closed} {
		w.Must(w.Client.Create(w.Context(), q))
		w.deleteLater(q)
	}
	w.paperNodes(w.Namespace + "-node") // without a node, no job would start
	b := w.browse()
	ns := w.Namespace
	path := "/jobs/" + ns + "/genericjob/"
	job := func(name string) string { return submittedAs(name) }
	in := func(name, queue string) string {
		return strings.ReplaceAll(job(name), "spec:\n  replicaSpecs", "spec:\n  scheduler: {t9kScheduler: {queue: "+queue+"}}\n  replicaSpecs")
	}

	code, _, page := b.submits("check", ns, job("one"))
	if code != http.StatusOK {
		t.Errorf("a check: %d", code)
	}
	w.contains("a check", page, "The cluster accepts it", "Run 1 job", "t9k run -n "+ns+" -f job.yaml", "genericjob/one", "pod/one-w-1", "batch.tensorstack.dev/replica-rank", "It would start now.")
	w.absent("one")

	code, at, page := b.submits("run", ns, job("one"))
	if code != http.StatusOK || at != path+"one" {
		t.Errorf("a run: %d %s", code, at)
	}
	w.contains("the page of the job", page, "genericjob/one created.", "<bdi>one</bdi>")

	code, _, page = b.submits("run", ns, job("one"))
	if code != http.StatusConflict {
		t.Errorf("a name that is taken: %d", code)
	}
	w.contains("a name that is taken", page, ">Line 4<", "genericjob/one exists already", "choose another name")

	elsewhere := "no-" + ns
	for _, text := range []string{job("two") + "---\n" + job("one"), job("two") + "---\n" + strings.ReplaceAll(job("three"), "name: three", "name: three\n  namespace: "+elsewhere),
		job("two") + "---\napiVersion: example.com/v1\nkind: Gadget\nmetadata: {name: three}\n", job("two") + "---\n" + strings.ReplaceAll(job("three"), "type: w", "type: W")} {
		code, _, page = b.submits("run", ns, text)
		if code != http.StatusConflict {
			t.Errorf("a manifest with one bad document: %d", code)
		}
		w.contains("a manifest with one bad document", page, "1 error.", "Nothing can be created")
		w.absent("two")
	}
	_, _, page = b.submits("check", elsewhere, job("two"))
	w.contains("a namespace that there is not", page, "there is no namespace", elsewhere)
	_, _, page = b.submits("check", "No Namespace", job("two"))
	w.contains("a namespace that cannot be", page, "cannot be one")

	code, at, _ = b.submits("run", ns, job("four")+"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: data}\ndata: {a: b}\n---\n"+job("five"))
	if code != http.StatusOK || at != "/?ns="+ns {
		t.Errorf("several objects: %d %s", code, at)
	}
	w.job("four")
	w.job("five")
	w.Must(w.Client.Get(w.Context(), types.NamespacedName{Namespace: ns, Name: "data"}, &corev1.ConfigMap{}))
	generated := strings.ReplaceAll(job("x"), "name: x", "generateName: gen-")
	if code, at, page = b.submits("run", ns, generated); code != http.StatusOK || !strings.HasPrefix(at, path+"gen-") {
		t.Errorf("a generated name: %d %s %s", code, at, page)
	}

	w.Await("the console knows the queues", func() error {
		if text := b.page("/queues"); !strings.Contains(text, ">"+closed.Name+"<") {
			return errors.New(text)
		}
		return nil
	})
	w.Await("the API server's policy knows the closed queue", func() error {
		if _, _, page := b.submits("check", ns, in("two", closed.Name)); !strings.Contains(page, "queue "+closed.Name+" is closed and takes no new jobs") {
			return errors.New(page)
		}
		return nil
	})
	_, _, page = b.submits("check", ns, in("two", open.Name)+"---\n"+in("three", "q-"+elsewhere))
	w.contains("the room in queues", page, "There is no queue q-"+elsewhere, "podgroup/two", "Run 2 jobs")
}
