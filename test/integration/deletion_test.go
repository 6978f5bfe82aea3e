package integration

import (
	"errors"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/apiproxy"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
	"tensorstack.dev/batch/test/kit/namespace"
)

// TestOperatorDoesNotBlockNamespaceDeletion verifies that a namespace that is being deleted disappears, and that the
// operator does not keep trying to create pods there, which the API server refuses.
func TestOperatorDoesNotBlockNamespaceDeletion(t *testing.T) {
	w := newWorld(t)
	p := apiproxy.Start(t, w.Env.Config)
	startOperator(t, p.Kubeconfig)
	doomed := &world{w.Beside(w.Namespace + "-doomed")}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: doomed.Namespace}}
	w.Must(w.Client.Create(t.Context(), ns))
	doomed.Await("the namespace has its service account", func() error { return doomed.Get("default", &corev1.ServiceAccount{}) })
	// The ConfigMap's finalizer delays the deletion of the namespace, so that the operator sees it terminating for a
	// while. A finalizer also keeps the job.
	anchor := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "anchor", Finalizers: []string{"example.org/hold"}}}
	doomed.Create(anchor)
	job := jobs.New("job", jobs.Restarting(jobs.Role("w", 3, kubelet.Run), batch.RestartAlways, 100))
	job.Finalizers = []string{"example.org/hold"}
	doomed.Create(job)
	other := jobs.New("other", jobs.Role("w", 3, kubelet.Wait))
	doomed.Create(other)
	doomed.awaitPhase("job", batch.JobRunning)

	w.Must(w.Client.Delete(t.Context(), ns))
	doomed.awaitNoPods()
	w.settle()
	// The operator reconciles each of the 2 jobs after each of its 3 pods has disappeared, once more when it has
	// written the refusal to the status, and then every 30 s. Each time, it may try to create all missing pods: 1, 2,
	// 3, 3 and 3.
	refused := 0
	for _, r := range p.Seen("POST", doomed.Namespace+"/pods") {
		if r.Code == http.StatusForbidden {
			refused++
		}
	}
	if refused > 2*(1+2+3+3+3) {
		t.Errorf("%d refused attempts to create pods", refused)
	}
	doomed.patch("job", `{"metadata":{"finalizers":null}}`)
	w.Must(w.Client.Patch(t.Context(), anchor, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	w.Await("the namespace no longer exists", func() error {
		return namespace.Gone(w.Client.Get(t.Context(), types.NamespacedName{Name: doomed.Namespace}, ns))
	})
}

// TestJobDeletedWhileStartingLeavesNothing verifies, for background and foreground deletion, that a job that is
// deleted while it starts leaves no objects.
func TestJobDeletedWhileStartingLeavesNothing(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
		t.Run(string(policy), func(t *testing.T) {
			w := w.in(t)
			job := jobs.New("job", jobs.Role("w", 40, kubelet.Run))
			job.Spec.Service = &batch.ServiceOption{}
			w.Create(job)
			w.Await("the first pod exists", func() error {
				if len(w.pods()) == 0 {
					return errors.New("there are no pods")
				}
				return nil
			})
			w.Must(w.Client.Delete(t.Context(), job, client.PropagationPolicy(policy)))
			w.Await("the job no longer exists", func() error { return namespace.Gone(w.Get("job", job)) })
			w.settle()
			w.awaitNoPods()
			w.Await("the Service no longer exists", func() error { return namespace.Gone(w.Get("job", &corev1.Service{})) })
		})
	}
}

// TestFinishedJobIsDeletedAfterItsTimeToLive verifies that the operator deletes a finished job and its pods after the
// job's time to live.
func TestFinishedJobIsDeletedAfterItsTimeToLive(t *testing.T) {
	w := newWorld(t)
	p := apiproxy.Start(t, w.Env.Config)
	startOperator(t, p.Kubeconfig)
	job := jobs.New("job", jobs.Role("w", 2, kubelet.Exit, "0"))
	one := int32(1)
	job.Spec.TTLSecondsAfterFinished = &one
	w.Create(job)
	w.Await("the job no longer exists", func() error { return namespace.Gone(w.Get("job", job)) })
	w.awaitNoPods()
	writes, deletions := p.Seen("PUT", w.Namespace+"/genericjobs/job/status"), p.Seen("DELETE", w.Namespace+"/genericjobs/job")
	if len(deletions) != 1 {
		t.Fatalf("%d deletions", len(deletions))
	}
	// The operator may write the status again while the job is being deleted, so the last write before the deletion
	// counts.
	end := writes[0].At
	for _, write := range writes {
		if write.At.Before(deletions[0].At) {
			end = write.At
		}
	}
	// A status stores whole seconds, so a time to live of 1 s can end soon after the job.
	// TestTimeLimitsAreKeptWithinASecond of test/e2e measures how late the deletion may be.
	if lived := deletions[0].At.Sub(end); lived < 10*time.Millisecond {
		t.Errorf("it was deleted %s after its end", lived)
	}
}
