package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/audit"
	"tensorstack.dev/batch/internal/testing/testenv"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
	"tensorstack.dev/batch/test/kit/namespace"
	"tensorstack.dev/batch/test/kit/plane"
)

// countedUser is the user name of an operator whose requests the API server logs with their bodies.
const countedUser = "counted-operator"

// TestJobTakesFewRequests verifies, with the audit log, the number of requests in the life of a job without incidents,
// and the size and frequency of the status writes of a job with 1,000 replicas.
func TestJobTakesFewRequests(t *testing.T) {
	w := newCountedWorld(t)
	for _, replicas := range []int32{4, 50} {
		t.Run(fmt.Sprintf("%d replicas", replicas), func(t *testing.T) { w.in(t).countRequests(replicas) })
	}
	t.Run("1000 replicas", func(t *testing.T) { w.in(t).checkStatusWrites(1000) })
}

// newCountedWorld returns a world on a separate control plane with an operator whose requests are logged.
func newCountedWorld(t *testing.T) *world {
	t.Helper()
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte(fmt.Sprintf("%[1]s,%[1]s,%[1]s,system:masters", countedUser)), 0o600); err != nil {
		t.Fatal(err)
	}
	p := plane.Start(t, testenv.Options{
		AuditPolicy: audit.Policy("Request", countedUser),
		Args:        map[string][]string{local.APIServer: {"--token-auth-file=" + tokens}},
	})
	w := &world{&namespace.Test{T: t, Plane: p, Namespace: metav1.NamespaceDefault}}
	w.Must(kubelet.Start(t.Context(), p.Core))
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	cluster := &clientcmdapi.Cluster{Server: p.Env.Config.Host, CertificateAuthorityData: p.Env.Config.CAData}
	w.Must(plane.WriteKubeconfig(kubeconfig, cluster, &clientcmdapi.AuthInfo{Token: countedUser}))
	startOperator(t, kubeconfig)
	return w
}

// live runs a job from its start to its end: all its pods run, then all succeed.
func (w *world) live(name string, replicas int32) {
	w.Helper()
	job := jobs.New(name, jobs.Role("worker", replicas, kubelet.Run))
	job.Spec.Service = &batch.ServiceOption{Ports: []corev1.ServicePort{{Name: "p", Port: 2222}}}
	w.Create(job)
	w.awaitPhase(name, batch.JobRunning)
	w.endAll()
	w.awaitPhase(name, batch.JobSucceeded)
}

// endAll makes all running pods exit with code 0, kubelet.Workers at a time.
func (w *world) endAll() {
	w.Helper()
	next := make(chan *corev1.Pod)
	errs := make(chan error, kubelet.Workers)
	var wg sync.WaitGroup
	for range kubelet.Workers {
		wg.Go(func() {
			var all []error
			for pod := range next {
				all = append(all, kubelet.End(w.Context(), w.Core, pod, 0))
			}
			errs <- errors.Join(all...)
		})
	}
	for _, pod := range w.pods() {
		if pod.Status.Phase == corev1.PodRunning {
			next <- pod
		}
	}
	close(next)
	wg.Wait()
	close(errs)
	for err := range errs {
		w.Must(err)
	}
}

// requests waits for the event of a job's end, which is the operator's last request for it, and returns all requests
// that concern the job or its objects.
func (w *world) requests(job string) []audit.Event {
	w.Helper()
	var all []audit.Event
	log := audit.Open(w.Env.AuditLog)
	w.Await("an event reports the end", func() error {
		more, err := log.Next()
		if err != nil {
			return err
		}
		for _, e := range more {
			if e.Name == job || len(e.Name) > len(job) && (e.Name[:len(job)+1] == job+"-" || e.Name[:len(job)+1] == job+".") {
				all = append(all, e)
			}
		}
		last := slices.IndexFunc(all, func(e audit.Event) bool {
			return e.Resource == "events" && bytes.Contains(e.Body, []byte(`"reason":"`+string(batch.ReasonSuccessRule)+`"`))
		})
		if last < 0 {
			return fmt.Errorf("so far there were %v", audit.Count(all))
		}
		return nil
	})
	return all
}

func (w *world) countRequests(replicas int32) {
	w.Helper()
	name := fmt.Sprintf("of-%d", replicas)
	w.live(name, replicas)
	all := w.requests(name)
	n := audit.Count(all)
	w.Logf("%d requests: %v", len(all), n)
	// On a slow machine, the operator updates the numbers of replicas in the status once a second.
	slow := int(max(0, all[len(all)-1].At.Sub(all[0].At)-3*time.Second) / time.Second)
	for sort, most := range map[string]int{
		"create pods": int(replicas), "create services": 1, "update genericjobs/status": 5 + slow, "create events": 4,
	} {
		if n[sort] > most {
			w.Errorf("%s: %d requests, want at most %d", sort, n[sort], most)
		}
	}
	if n["create pods"] != int(replicas) || n["create services"] != 1 || n["update genericjobs/status"] < 2 {
		w.Errorf("the requests are not all in the log: %v", n)
	}
	if most := int(replicas) + 8 + slow; len(all) > most {
		w.Errorf("%d requests, want at most %d", len(all), most)
	}
}

// checkStatusWrites checks the size and the frequency of the status writes of a large job.
func (w *world) checkStatusWrites(replicas int32) {
	w.Helper()
	const largest = 300 << 10
	name := fmt.Sprintf("of-%d", replicas)
	w.live(name, replicas)
	var before *batch.GenericJobStatus
	var at time.Time
	writes := 0
	for _, e := range w.requests(name) {
		if e.Resource != "genericjobs/status" {
			continue
		}
		if e.Code == 409 { // a conflict: the operator's cache was old
			continue
		}
		if e.Code != 200 {
			w.Errorf("the answer to a status write is %d", e.Code)
		}
		writes++
		if len(e.Body) > largest {
			w.Errorf("a status write of %d KiB, want at most %d", len(e.Body)>>10, largest>>10)
		}
		job := &batch.GenericJob{}
		w.Must(json.Unmarshal(e.Body, job))
		if before != nil && e.At.Sub(at) < time.Second && !changesMore(before, &job.Status) {
			w.Errorf("a status write that changes only replica phases came %v after the last one", e.At.Sub(at))
		}
		w.Logf("%s: %s, %d KiB, %+v", e.At.Format("15:04:05.000"), job.Status.Phase, len(e.Body)>>10, job.Status.Aggregate)
		before, at = &job.Status, e.At
	}
	if writes < 3 {
		w.Errorf("the log has %d status writes", writes)
	}
	if before.Phase != batch.JobSucceeded || before.Aggregate.Succeeded != replicas {
		w.Errorf("the last written status has %s, %+v", before.Phase, before.Aggregate)
	}
}

// changesMore reports whether two statuses differ in their phase, run mode, backoff count, or in conditions other
// than messages.
func changesMore(a, b *batch.GenericJobStatus) bool {
	same := slices.EqualFunc(a.Conditions, b.Conditions, func(a, b batch.JobCondition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason
	})
	return !same || a.Phase != b.Phase || a.RunMode != b.RunMode || a.BackoffCount != b.BackoffCount
}
