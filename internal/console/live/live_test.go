package live

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	resourcehelper "k8s.io/component-helpers/resource"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/console/view"
	"tensorstack.dev/batch/internal/kinds/kindtest"
	"tensorstack.dev/batch/internal/observed"
)

// api is a fake API server that serves lists and watches of the objects that a test adds, except for paths that the
// user may not list.
type api struct {
	mu      sync.Mutex
	objects map[string][]any    // by the path of their list
	watches map[string]chan any // the events of watches, by the path of their list
	// forbidden holds the paths that the user may not list. The server answers 404 for all other unknown paths.
	forbidden map[string]bool
}

// listOf holds the version and the kind of the list for each plural that a test uses.
var listOf = map[string][2]string{"genericjobs": {"batch.tensorstack.dev/v1beta1", "GenericJobList"}, "pods": {"v1", "PodList"}, "events": {"v1", "EventList"},
	"podgroups": {"scheduler.tensorstack.dev/v1beta1", "PodGroupList"}}

const (
	ofBatch = "/apis/batch.tensorstack.dev/v1beta1/"
	inRed   = "namespaces/red/"
)

// ServeHTTP answers list and watch requests.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	objects, served := a.objects[r.URL.Path]
	forbidden, events := a.forbidden[r.URL.Path], a.watches[r.URL.Path]
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	refuse := func(code int, reason string) {
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
	}
	q := r.URL.Query()
	switch {
	case forbidden:
		refuse(http.StatusForbidden, "Forbidden")
	case !served:
		refuse(http.StatusNotFound, "NotFound")
	case q.Get("sendInitialEvents") != "":
		refuse(http.StatusUnprocessableEntity, "Invalid") // the client lists instead
	case q.Get("watch") != "":
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case <-r.Context().Done():
				return
			case e := <-events:
				_ = json.NewEncoder(w).Encode(e)
				_ = http.NewResponseController(w).Flush()
			}
		}
	default:
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": listOf[path.Base(r.URL.Path)][1], "apiVersion": listOf[path.Base(r.URL.Path)][0], "metadata": map[string]string{"resourceVersion": "1"}, "items": objects})
	}
}

func job(namespace, name string, uid types.UID) *batch.GenericJob {
	return &batch.GenericJob{TypeMeta: metav1.TypeMeta{APIVersion: batch.GroupVersion.String(), Kind: "GenericJob"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid, ResourceVersion: "1"}}
}

// start starts a cache of the objects of a, and waits until the cache is filled. The cache stops at the end of the
// test.
func start(t *testing.T, a *api, namespace string) *Cache {
	t.Helper()
	server := httptest.NewServer(a)
	ctx, stop := context.WithCancel(context.Background())
	c, err := Start(ctx, &rest.Config{Host: server.URL, QPS: -1}, namespace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		c.Wait()
		server.CloseClientConnections()
		server.Close()
	})
	await(t, c.Settled(), "the cache is filled")
	return c
}

func await[T any](t *testing.T, ch <-chan T, what string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(2 * time.Minute):
		t.Fatal(what + ": it has not happened")
	}
}

func names(v *View) map[string]bool {
	all := map[string]bool{}
	for _, r := range v.Jobs() {
		all[r.Namespace+"/"+r.Name] = true
	}
	return all
}

// TestCacheHoldsWhatTheUserMayList verifies that the cache falls back to one namespace, reports hidden resources, and
// publishes changes.
func TestCacheHoldsWhatTheUserMayList(t *testing.T) {
	jobs := ofBatch + inRed + "genericjobs"
	a := &api{objects: map[string][]any{jobs: {job("red", "a", "1")}, "/api/v1/pods": {}},
		watches:   map[string]chan any{jobs: make(chan any)},
		forbidden: map[string]bool{ofBatch + "genericjobs": true, "/api/v1/nodes": true, "/api/v1/events": true, "/api/v1/namespaces/red/events": true}}
	c := start(t, a, "red")
	v := c.For(nil)
	if diff := cmp.Diff(map[string]bool{"red/a": true}, names(v)); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	served := slices.DeleteFunc(v.HiddenJobs(), func(h view.Hidden) bool { return h.What != "GenericJobs" })
	hidden := view.HiddenNotes(append(v.Nodes().Hidden, served...))
	if diff := cmp.Diff([]string{"You may not list nodes.", "You may not list GenericJobs of all namespaces: only namespace red is shown. t9k ui -n NAMESPACE shows another one."}, hidden); diff != "" {
		t.Errorf("hidden (-want +got):\n%s", diff)
	}
	notices, end := c.Subscribe(TopicJobs)
	defer end()
	b := job("red", "b", "2")
	a.watches[jobs] <- map[string]any{"type": "ADDED", "object": b}
	for !names(v)["red/b"] {
		await(t, notices, "a notice of the new job")
	}
	a.watches[jobs] <- map[string]any{"type": "DELETED", "object": b}
	for names(v)["red/b"] {
		await(t, notices, "a notice of the deletion")
	}
	if v.Job(kindtest.Named("GenericJob"), "red", "b") != nil {
		t.Error("the deleted job is there")
	}
}

// TestWithdrawnRightIsShownAtOnce verifies that the cache reports a resource as hidden as soon as its watch is refused.
func TestWithdrawnRightIsShownAtOnce(t *testing.T) {
	jobs := ofBatch + "genericjobs"
	a := &api{objects: map[string][]any{jobs: {job("red", "a", "1")}}, watches: map[string]chan any{jobs: make(chan any)}, forbidden: map[string]bool{}}
	c := start(t, a, "red")
	v := c.For(nil)
	hidden := func() bool {
		return slices.Contains(v.HiddenJobs(), view.Hidden{What: "GenericJobs"})
	}
	if hidden() || !names(v)["red/a"] {
		t.Fatalf("hidden are %v, jobs are %v", v.HiddenJobs(), names(v))
	}
	notices, end := c.Subscribe("")
	defer end()
	a.mu.Lock()
	a.forbidden[jobs], a.forbidden[ofBatch+inRed+"genericjobs"] = true, true
	a.mu.Unlock()
	a.watches[jobs] <- map[string]any{"type": "ERROR", "object": map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410}}
	for !hidden() || len(names(v)) > 0 {
		await(t, notices, "a notice of the withdrawn right")
	}
}

// TestCacheEndsWithItsContext verifies that a cache ends if its context has ended before it was started.
func TestCacheEndsWithItsContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	c, err := Start(ctx, &rest.Config{Host: "127.0.0.1:1"}, "red")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { c.Wait(); close(ended) }()
	await(t, ended, "the cache ends")
}

// TestCachedPodsKeepTheirRequests verifies that the cache keeps all fields of a pod that its requests depend on.
func TestCachedPodsKeepTheirRequests(t *testing.T) {
	cpu := func(amount string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}}
	}
	for name, spec := range map[string]corev1.PodSpec{
		"of containers": {Containers: []corev1.Container{{Resources: cpu("1")}, {Resources: cpu("2")}}},
		"of an init container and a sidecar": {Containers: []corev1.Container{{Resources: cpu("1")}}, InitContainers: []corev1.Container{
			{Resources: cpu("3"), RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}, {Resources: cpu("9")}}},
		"of the pod":    {Containers: []corev1.Container{{Resources: cpu("1")}}, Resources: new(cpu("5"))},
		"with overhead": {Containers: []corev1.Container{{Resources: cpu("1")}}, Overhead: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: spec}
			want := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
			slim, err := slimPod(pod.DeepCopy())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, resourcehelper.PodRequests(slim.(*corev1.Pod), resourcehelper.PodResourcesOptions{})); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// rights are the namespaces in which a viewer may list all resources.
type rights []string

// List implements Rights.
func (r rights) List(_ schema.GroupResource, namespaces []string) Scope {
	s := Scope{In: map[string]bool{}}
	for _, n := range namespaces {
		s.In[n] = strings.Contains(strings.Join(r, " "), n)
	}
	return s
}

// TestViewsHideWhatTheirViewersMayNotList verifies that viewers of one cache see only the objects that they may list,
// and that the cache drops the fields of pods that no page shows.
func TestViewsHideWhatTheirViewersMayNotList(t *testing.T) {
	pod := func(namespace string) *corev1.Pod {
		return &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a-w-0", UID: types.UID(namespace), ResourceVersion: "1",
			Labels: map[string]string{batch.LabelJobName: "a", batch.LabelJobKind: "GenericJob"}, Annotations: map[string]string{"large": "value", scheduling.AnnotationRequestedBy: `["mei"]`},
			OwnerReferences: []metav1.OwnerReference{{UID: map[string]types.UID{"red": "1", "blue": "2"}[namespace], Controller: new(true)}}},
			Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "main", Command: []string{"python"}}}}}
	}
	c := start(t, &api{objects: map[string][]any{ofBatch + "genericjobs": {job("red", "a", "1"), job("blue", "a", "2")}, "/api/v1/pods": {pod("red"), pod("blue")}, "/api/v1/events": {},
		"/apis/scheduler.tensorstack.dev/v1beta1/podgroups": {}}}, "")
	for _, test := range []struct {
		rights Rights
		jobs   map[string]bool
		pods   int
	}{
		{nil, map[string]bool{"red/a": true, "blue/a": true}, 2}, {rights{"red"}, map[string]bool{"red/a": true}, 1}, {rights{}, map[string]bool{}, 0},
	} {
		v := c.For(test.rights)
		if diff := cmp.Diff(test.jobs, names(v)); diff != "" {
			t.Errorf("%v: jobs (-want +got):\n%s", test.rights, diff)
		}
		if got := len(v.Nodes().Pods); got != test.pods {
			t.Errorf("%v: %d pods on nodes, want %d", test.rights, got, test.pods)
		}
		for _, namespace := range []string{"red", "blue"} {
			j := v.Job(kindtest.Named("GenericJob"), namespace, "a")
			if (j != nil) != test.jobs[namespace+"/a"] {
				t.Errorf("%v: the job in %s is there: %v", test.rights, namespace, j != nil)
			}
			if j != nil && len(v.Pods(j)) != 1 {
				t.Errorf("%v: %d pods of the job in %s", test.rights, len(v.Pods(j)), namespace)
			}
			if j != nil && v.Input(j, time.Now()).Partial != (test.rights != nil) {
				t.Errorf("%v: what waits beside the job in %s is partial: %t", test.rights, namespace, test.rights == nil)
			}
		}
	}
	kept := c.For(nil).Nodes().Pods[0]
	if diff := cmp.Diff(map[string]string{scheduling.AnnotationRequestedBy: `["mei"]`}, kept.Annotations); diff != "" || kept.Spec.Containers[0].Command != nil {
		t.Errorf("the cache keeps of a pod what no page shows: %v", kept)
	}
}

// TestWarningsAboutPods verifies that a job has exactly the warnings about its own pods, in the order of their times,
// and that a warning notifies the viewers of the pod's job and no others.
func TestWarningsAboutPods(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: "a-w-0", UID: "pod", ResourceVersion: "1", Labels: map[string]string{batch.LabelJobName: "a", batch.LabelJobKind: "GenericJob"},
		OwnerReferences: []metav1.OwnerReference{{UID: "1", Controller: new(true)}}}}
	about := func(namespace, name, pod string, uid types.UID) *corev1.Event {
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name), ResourceVersion: "1"}, Type: "Warning", Reason: "FailedMount", Message: name,
			LastTimestamp: metav1.Unix(int64(len(name)), 0), InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: pod, UID: uid}, ReportingController: "kubelet"}
	}
	c := start(t, &api{objects: map[string][]any{ofBatch + "genericjobs": {job("red", "a", "1")}, "/api/v1/pods": {pod}, "/api/v1/events": {
		about("red", "later", "a-w-0", "pod"), about("red", "soon", "a-w-0", "pod"), about("blue", "forged", "a-w-0", "pod"), about("red", "of another", "b-w-0", "other")}}}, "")
	for _, test := range []struct {
		rights Rights
		want   []string
	}{{nil, []string{"soon", "later"}}, {rights{"red"}, []string{"soon", "later"}}} {
		v := c.For(test.rights)
		var got []string
		for _, e := range v.Input(v.Job(kindtest.Named("GenericJob"), "red", "a"), time.Now()).Warnings {
			got = append(got, e.Message)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%v: warnings (-want +got):\n%s", test.rights, diff)
		}
	}
	ofJob, end := c.Subscribe(JobTopic("GenericJob", "red", "a"))
	defer end()
	ofOther, endOther := c.Subscribe(JobTopic("GenericJob", "red", "b"), TopicJobs, topicNodes)
	defer endOther()
	c.warningHandler().OnAdd(about("red", "of another", "b-w-0", "other"), false)
	if len(ofJob) != 0 {
		t.Error("a warning about another pod tells those who look at the job")
	}
	c.warningHandler().OnUpdate(nil, about("red", "soon", "a-w-0", "pod"))
	if len(ofJob) != 1 || len(ofOther) != 0 {
		t.Errorf("a warning gives %d notices of the job and %d of others, want 1 and 0", len(ofJob), len(ofOther))
	}
}

// TestNoticesReachSubscribersOfTheirTopic verifies that a notice reaches only the subscribers of its topic, or all
// subscribers if the topic is empty. Unread notices are merged into one, and none comes after the end of a
// subscription.
func TestNoticesReachSubscribersOfTheirTopic(t *testing.T) {
	c := &Cache{}
	notices, end := c.Subscribe("a", "b")
	other, endOther := c.Subscribe("c")
	defer endOther()
	for range 3 {
		c.hub.publish("a")
		c.hub.publish("b")
	}
	if len(notices) != 1 || len(other) != 0 {
		t.Errorf("%d and %d notices, want 1 and 0", len(notices), len(other))
	}
	c.hub.publish("")
	if len(other) != 1 {
		t.Error("a notice that concerns all has not come")
	}
	<-notices
	end()
	c.hub.publish("a")
	if len(notices) != 0 || len(c.hub.subscribers) != 1 {
		t.Errorf("%d notices after the end of the subscription, topics %v", len(notices), c.hub.subscribers)
	}
}

// podOf returns a pod of job a in namespace red. The pod is being deleted. owner is the UID of the job.
func podOf(owner types.UID, n int) *corev1.Pod {
	now := metav1.Now()
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: fmt.Sprint("w-", n), UID: types.UID(fmt.Sprint(owner, "-", n)), ResourceVersion: "1", DeletionTimestamp: &now,
		Labels:          map[string]string{batch.LabelJobName: "a", batch.LabelJobKind: "GenericJob"},
		OwnerReferences: []metav1.OwnerReference{{UID: owner, Controller: new(true)}}}}
}

// TestPastPods verifies that the newest deleted pods of a job are kept, at most maxPods of them, and dropped when the
// job is deleted or replaced. Pods of a job that does not exist are not kept.
func TestPastPods(t *testing.T) {
	c := &Cache{rows: map[string]view.JobRow{}, settled: make(chan struct{})}
	jobs, pods := c.jobHandler(kindtest.Named("GenericJob")), c.podHandler()
	key := func(uid types.UID) string {
		return keyOf(&observed.Job{Kind: kindtest.Named("GenericJob"), Object: job("red", "a", uid)})
	}
	kept := func(uid types.UID) int {
		all, _ := c.past.of(key(uid))
		return len(all)
	}
	pods.OnDelete(podOf("one", 2)) // before the cache has the job
	pods.OnDelete(podOf("other", 1))
	jobs.OnAdd(job("red", "a", "one"), false)
	close(c.settled)
	c.dropStray()
	if one, other := kept("one"), kept("other"); one != 1 || other != 0 {
		t.Errorf("%d pods of the job and %d of a job that does not exist are kept, want 1 and 0", one, other)
	}
	alive := podOf("one", 0)
	alive.DeletionTimestamp = nil
	pods.OnUpdate(alive, alive)
	pods.OnUpdate(alive, podOf("other", 1))
	pods.OnUpdate(alive, podOf("one", 2))
	pods.OnDelete(podOf("one", 2))
	if one, other := kept("one"), kept("other"); one != 1 || other != 0 {
		t.Errorf("%d pods of the job and %d of another one of its name are kept, want 1 and 0", one, other)
	}
	for n := range maxPods {
		pods.OnDelete(podOf("one", n+3))
	}
	all, _ := c.past.of(key("one"))
	if len(all) != maxPods || slices.ContainsFunc(all, func(p *corev1.Pod) bool { return p.Name == "w-2" }) {
		t.Errorf("%d pods are kept, want the newest %d", len(all), maxPods)
	}
	jobs.OnDelete(job("red", "a", "one"))
	pods.OnDelete(podOf("one", 2)) // with background deletion, a job is deleted before its pods
	jobs.OnAdd(job("red", "a", "two"), false)
	pods.OnDelete(podOf("one", 3))
	pods.OnDelete(podOf("two", 4))
	if one, two := kept("one"), kept("two"); one != 0 || two != 1 || c.past.kept != 1 {
		t.Errorf("%d pods of the job that is gone and %d of its successor are kept, want 0 and 1", one, two)
	}
	jobs.OnUpdate(job("red", "a", "two"), job("red", "a", "three")) // the watch missed the deletion of the job
	for n := range 2 * maxPods {
		pods.OnDelete(podOf("three", n))
		c.past.forget(key("three"))
	}
	if c.past.kept != 0 || len(c.past.pods) != 0 || len(c.past.order) > 2*maxPods {
		t.Errorf("of jobs that are gone %d pods are kept, in a list of %d", c.past.kept, len(c.past.order))
	}
}

// TestPastPodsTellWhenTheyWereDeleted verifies that a past pod shows when its deletion was requested, so that a pod
// that a pause stopped does not look like a failed pod.
func TestPastPodsTellWhenTheyWereDeleted(t *testing.T) {
	c := &Cache{rows: map[string]view.JobRow{}}
	c.jobHandler(kindtest.Named("GenericJob")).OnAdd(job("red", "a", "one"), false)
	pods := c.podHandler()
	asked := metav1.Unix(100, 0)
	version := func(deleted metav1.Time, grace int64, ended bool) *corev1.Pod {
		p := podOf("one", 0)
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &deleted, &grace
		if ended {
			p.Status.Phase = corev1.PodFailed
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 143, FinishedAt: metav1.Unix(101, 0)}}}}
		}
		return p
	}
	running, killed, confirmed := version(metav1.Unix(130, 0), 30, false), version(metav1.Unix(130, 0), 30, true), version(metav1.Unix(102, 0), 0, true)
	pods.OnUpdate(running, running)
	pods.OnUpdate(running, killed)
	pods.OnUpdate(killed, confirmed)
	pods.OnDelete(confirmed)
	all, _ := c.past.of(keyOf(&observed.Job{Kind: kindtest.Named("GenericJob"), Object: job("red", "a", "one")}))
	if len(all) != 1 || !observed.Stopped(all[0]) || all[0].DeletionTimestamp.Unix() != asked.Unix()+30 || *confirmed.DeletionGracePeriodSeconds != 0 {
		t.Errorf("what is kept is %+v", all)
	}
}

// TestFormerConditions verifies that the cache keeps an earlier pause of a job after the next pause has replaced its
// condition.
func TestFormerConditions(t *testing.T) {
	c := &Cache{rows: map[string]view.JobRow{}}
	jobs := c.jobHandler(kindtest.Named("GenericJob"))
	paused := func(reason batch.Reason, since int64) *batch.GenericJob {
		j := job("red", "a", "one")
		j.Status.Conditions = []batch.JobCondition{{Type: batch.JobPausedCondition, Reason: reason, LastTransitionTime: metav1.Unix(since, 0)}}
		return j
	}
	states := []*batch.GenericJob{job("red", "a", "one"), paused(batch.ReasonNotPaused, 1), paused(batch.ReasonPaused, 2), paused(batch.ReasonPaused, 2), paused(batch.ReasonResumed, 3), paused(batch.ReasonPaused, 4)}
	for i := 1; i < len(states); i++ {
		jobs.OnUpdate(states[i-1], states[i])
	}
	_, all := c.past.of(keyOf(&observed.Job{Kind: kindtest.Named("GenericJob"), Object: states[0]}))
	var got []string
	for _, c := range all {
		got = append(got, fmt.Sprint(c.Reason, c.LastTransitionTime.Unix()))
	}
	if diff := cmp.Diff([]string{"NotPaused1", "Paused2", "Resumed3"}, got); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}

// TestPodsOfAFormerJob verifies that a job does not get the pods of an earlier job with the same name.
func TestPodsOfAFormerJob(t *testing.T) {
	c := start(t, &api{objects: map[string][]any{ofBatch + "genericjobs": {job("red", "a", "new")}, "/api/v1/pods": {podOf("old", 0), podOf("new", 1)}, "/api/v1/events": {}}}, "")
	v := c.For(nil)
	in := v.Input(v.Job(kindtest.Named("GenericJob"), "red", "a"), time.Now())
	if len(in.Pods) != 1 || in.Pods[0].UID != "new-1" {
		t.Errorf("the job has %d pods, of which the first is %v", len(in.Pods), in.Pods)
	}
}
