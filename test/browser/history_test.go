package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/archive/store"
	"tensorstack.dev/batch/internal/archive/web"
	"tensorstack.dev/batch/internal/kinds"
)

// newArchive opens an empty archive.
func newArchive(t testing.TB) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "archive.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// withArchive serves an archive with the given access, and returns the path of a copy of a kubeconfig that names the
// archive.
func withArchive(t testing.TB, kubeconfig string, s *store.Store, access web.Access) string {
	t.Helper()
	server := httptest.NewServer(web.New(s, func(http.ResponseWriter, *http.Request) web.Access { return access }))
	t.Cleanup(server.Close)
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	address, err := json.Marshal(archive.Address{Server: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range config.Clusters {
		c.Extensions = map[string]runtime.Object{archive.KubeconfigExtension: &runtime.Unknown{Raw: address, ContentType: runtime.ContentTypeJSON}}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// allowAll is a web.Access that allows every request.
type allowAll struct{}

// MayGet implements web.Access.
func (allowAll) MayGet(_ context.Context, _ schema.GroupResource, namespaces []string) ([]bool, error) {
	return slices.Repeat([]bool{true}, len(namespaces)), nil
}

// keep puts the jobs, pods, logs and events of a scene into an archive. Jobs that finished more than an hour ago are
// recorded as deleted one hour after their end.
func (s *scene) keep(t testing.TB, to *store.Store) {
	t.Helper()
	b := &store.Batch{At: s.now}
	owners := s.keepJobs(t, b)
	pods := map[*corev1.Pod]bool{}
	for _, o := range s.objects["pods"] {
		pods[o.(*corev1.Pod)] = true
	}
	for _, e := range s.events["pods"] {
		pods[e.Object.(*corev1.Pod)] = true
	}
	for p := range pods {
		j := owners[p.Namespace+"/"+p.Labels[batch.LabelJobName]]
		p = p.DeepCopy()
		p.ResourceVersion = "1"
		a, err := archive.AttemptOf(p)
		if err != nil || a == nil {
			t.Fatalf("pod %s is attempt %v, %v", p.Name, a, err)
		}
		if p.DeletionTimestamp != nil {
			a.MarkDeleted(p, p.DeletionTimestamp.Time, true)
		}
		if a.Started.Before(a.Created) { // the stage shows a restarted replica as if it had been running all the time
			a.Scheduled, a.Started = a.Created.Add(10*time.Second), a.Created.Add(40*time.Second)
		}
		b.Attempts = append(b.Attempts, a)
		b.Logs = append(b.Logs, &archive.Log{Attempt: a.UID, Job: j.UID, Container: "main", At: s.now, Text: []byte(s.log), Cut: true})
	}
	for i, o := range s.objects["events"] {
		e := o.(corev1.Event)
		e.ResourceVersion, e.UID = "1", types.UID(fmt.Sprintf("event-%d", i))
		record, err := archive.EventOf(&e)
		if err != nil {
			t.Fatal(err)
		}
		b.Events = append(b.Events, record)
	}
	if err := to.Write(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

// keepJobs adds the jobs of a scene to a batch, and returns them by namespace and name.
func (s *scene) keepJobs(t testing.TB, b *store.Batch) map[string]*archive.Job {
	t.Helper()
	owners := map[string]*archive.Job{}
	for _, o := range s.objects["genericjobs"] {
		raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{Object: raw}
		u.SetResourceVersion("1")
		kind, err := kinds.ByName(u.GetKind())
		if err != nil {
			t.Fatal(err)
		}
		j, err := archive.JobOf(&kind, u)
		if err != nil {
			t.Fatal(err)
		}
		if gone := j.Ended.Add(time.Hour); !j.Ended.IsZero() && gone.Before(s.now) {
			j.Gone = gone
		}
		owners[j.Namespace+"/"+j.Name] = j
		b.Jobs = append(b.Jobs, j)
	}
	return owners
}

// month returns a scene with 70 jobs that ran within about a month.
func month() *scene {
	s := &scene{&stage{log: logText}, time.Now().UTC().Truncate(time.Second)}
	at := func(rank int32) string { return fmt.Sprintf("gpu-%d", rank/8) }
	for i := range 70 {
		team := []struct{ namespace, queue, user, name string }{
			{"vision", "research", "amelie", "detr-ablation"}, {"language", "research", "mei", "llama-7b-pretrain"}, {"speech", "production", "jonas", "whisper-finetune"},
			{"language", "research", "mei", "tokenizer-64k"}, {"vision", "notebooks", "tomás", "label-cleaning"},
		}[(2*i+i/5)%5]
		began := time.Duration(i*10+i*i%7) * time.Hour
		p := play{namespace: team.namespace, name: fmt.Sprintf("%s-%d", team.name, 70-i), queue: team.queue, user: team.user, phase: batch.JobSucceeded, replicas: int32(1 << (i % 4)),
			gpus: fmt.Sprint(1 + i%3), created: began + 9*time.Hour, started: began + 8*time.Hour + 20*time.Minute, ended: began + time.Duration(i%5)*time.Hour + 10*time.Minute, node: at}
		switch {
		case i%9 == 4:
			p.phase, p.message = batch.JobFailed, "Replica "+p.name+"-worker-0 has failed with exit code 1: torch.cuda.OutOfMemoryError: CUDA out of memory."
		case i == 3:
			p.crashed = began + 5*time.Hour
		}
		s.job(&p)
	}
	return s
}

// ages returns a scene with 150 jobs with long names, and a job that had 1,200 replicas.
func ages() *scene {
	s := &scene{&stage{log: strings.Repeat(logText, 20)}, time.Now().UTC().Truncate(time.Second)}
	at := func(rank int32) string {
		return fmt.Sprintf("gpu-node-with-a-long-name-%03d.rack-%02d.cluster.example.com", rank/8, rank/80)
	}
	s.job(&play{namespace: "language", name: "mixture-of-experts-pretraining", queue: "research", user: "mei", phase: batch.JobSucceeded, replicas: 1200, gpus: "1",
		created: 50 * hour, started: 49 * hour, ended: 2 * hour, crashed: 7 * hour, node: at})
	for i := range 150 {
		s.job(&play{namespace: "namespace-of-a-team-with-a-long-name", name: fmt.Sprintf("hyperparameter-search-with-a-name-that-does-not-end-%04d", i), queue: fmt.Sprintf("queue-with-a-long-name-%d", i%13),
			user: fmt.Sprintf("somebody.with.a.long.name.%d@research.example.com", i%17), phase: batch.JobFailed, replicas: 1, gpus: "8", created: time.Duration(51+i) * hour, started: time.Duration(50+i) * hour,
			ended: 3 * hour, message: strings.Repeat("The replica has failed with an exit code. ", 12), node: at})
	}
	return s
}
