package integration

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/kinds/kindtest"
	"tensorstack.dev/batch/internal/observed"
	"tensorstack.dev/batch/internal/steer"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
	"tensorstack.dev/batch/test/kit/namespace"
)

// recreate creates a job, deletes it, and creates another one with the same name. It returns the deleted job.
func (w *world) recreate(name string) (gone *batch.GenericJob) {
	w.Helper()
	w.Create(jobs.New(name, jobs.Role("w", 1, kubelet.Run)))
	gone = w.job(name)
	w.Must(w.Client.Delete(w.Context(), w.job(name)))
	w.awaitGone(name, &batch.GenericJob{})
	w.Create(jobs.New(name, jobs.Role("w", 1, kubelet.Run)))
	return gone
}

// TestNothingIsDoneToAJobThatWasCreatedAgain verifies that an action on a job does not change another job that was
// created later under the same name.
func TestNothingIsDoneToAJobThatWasCreatedAgain(t *testing.T) {
	w := newWorld(t)
	objects, err := dynamic.NewForConfig(w.Env.Config)
	w.Must(err)
	c := steer.Client{Objects: objects, Manager: "test"}
	gone := w.recreate("job")
	old := &observed.Job{Kind: kindtest.Named("GenericJob"), Object: gone}
	before := w.job("job")
	_, paused := c.Set(t.Context(), old, steer.Pause, true)
	_, copied := c.Copy(t.Context(), old, "copy")
	for what, err := range map[string]error{"pause": paused, "copy": copied, "delete": c.Delete(t.Context(), old)} {
		if !errors.Is(err, steer.ErrReplaced) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// GenericJobs have no scale subresource, so the API server may also answer that there is none.
	if err := c.Resize(t.Context(), old, 2); !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		t.Errorf("scale: %v", err)
	}
	if after := w.job("job"); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("the new job has changed: %+v", after)
	}
	if err := w.Get("copy", &batch.GenericJob{}); !apierrors.IsNotFound(err) {
		t.Errorf("the copy: %v", err)
	}
}

// TestFormsOfAFormerJob verifies that the console refuses requests from a page that shows a deleted job if another
// job has its name.
func TestFormsOfAFormerJob(t *testing.T) {
	w := newWorld(t)
	b := w.browse()
	gone := w.recreate("job")
	path := "/jobs/" + w.Namespace + "/genericjob/job"
	uid := func(u types.UID) url.Values { return url.Values{"uid": {string(u)}} }
	now := w.job("job")
	w.Await("the page is that of the new job", func() error {
		if page := b.page(path); !strings.Contains(page, `value="`+string(now.UID)+`"`) {
			return errors.New(page)
		}
		return nil
	})
	for _, verb := range []string{"pause", "debug-on", "delete", "rerun"} {
		b.refused(path+"/"+verb, uid(gone.UID), "is another job than the page showed")
	}
	stale, fresh := path+"?uid="+string(gone.UID), path+"?uid="+string(now.UID)
	list := "ns=" + w.Namespace + "&page=3"
	question := b.page("/act?verb=pause&filter=" + url.QueryEscape(list) + "&job=" + url.QueryEscape(stale))
	w.contains("the question about a former job", question, "1 selected job is left out", "No job is selected", `href="/?ns=`+w.Namespace+`&amp;page=3"`)
	w.contains("the question about both", b.page("/act?verb=pause&job="+url.QueryEscape(stale)+"&job="+url.QueryEscape(fresh)), "Pause 1 job?", "1 selected job is left out", string(now.UID))
	b.refused("/act", url.Values{"verb": {"delete"}, "job": {stale}, "filter": {list}}, "Done with 0, not with 1", "is another job than the page showed", `href="/?ns=`+w.Namespace+`&amp;page=3"`)
	if after := w.job("job"); after.ResourceVersion != now.ResourceVersion || after.DeletionTimestamp != nil {
		t.Errorf("the new job has changed: %+v", after)
	}
	b.posts(path+"/pause", uid(now.UID))
	w.contains("the list after an action on several jobs", b.posts("/act", url.Values{"verb": {"delete"}, "job": {fresh}, "filter": {"ns=" + w.Namespace}}),
		"delete: accepted for 1 job.", `<option selected>`+w.Namespace)
	w.Await("the job is gone", func() error { return namespace.Gone(w.Get("job", &batch.GenericJob{})) })
}

// refused submits a form of a page, and verifies that the console refuses it with a page that contains the texts.
func (b *browser) refused(path string, form url.Values, texts ...string) {
	b.Helper()
	code, body := b.presses(path, form)
	if code != http.StatusConflict {
		b.Errorf("%s: %d: %s", path, code, body)
	}
	b.contains(fmt.Sprintf("the answer to %s", path), body, texts...)
}

// TestManifestFollowsItsJob verifies that the tab Manifest shows the current job after a change, and after another
// job with the same name was created, both in pages that were already open and in pages opened later.
func TestManifestFollowsItsJob(t *testing.T) {
	w := newWorld(t)
	b := w.browse()
	w.Create(jobs.New("job", jobs.Role("w", 1, kubelet.Run)))
	path := "/jobs/" + w.Namespace + "/genericjob/job?tab=manifest"
	w.Await("the page is there", func() error { return b.opensOr(path) })
	open := b.listen(path)
	b.awaitPush(open, "kind: GenericJob")
	w.patch("job", `{"metadata":{"labels":{"changed":"once"}}}`)
	b.awaitPush(open, "changed: once")
	b.awaitPush(b.listen(path), "changed: once")

	w.Must(w.Client.Delete(w.Context(), w.job("job")))
	b.awaitPush(open, "It is gone")
	w.awaitGone("job", &batch.GenericJob{})
	again := jobs.New("job", jobs.Role("w", 1, kubelet.Run))
	again.Labels = map[string]string{"changed": "twice"}
	w.Create(again)
	b.awaitPush(open, "changed: twice")
	beside := b.listen(path)
	b.awaitPush(beside, "changed: twice")
	if strings.Contains(beside.String(), "changed: once") {
		t.Errorf("a page that was opened later shows the manifest of the job that is gone:\n%s", beside)
	}
}

// opensOr returns an error unless the page at path opens.
func (b *browser) opensOr(path string) error {
	answer, err := b.Get(b.base + path)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}
