package browser

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/testenv"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/plane"
)

// BenchmarkRowOnScreen measures the time from the write of a job's status to a real API server with 10,000 jobs until
// the browser has painted the changed row of the page Jobs.
func BenchmarkRowOnScreen(b *testing.B) {
	p := plane.Start(b, testenv.Options{Components: []string{local.Etcd, local.APIServer, local.CRDs}})
	last := createJobs(b, p, 10_000)
	tab := open(b, serve(b, p.Env.Kubeconfig))
	tab.visit("/?sort=-name")
	tab.shows("of 10,000 jobs", last.Name)
	var times []float64
	for b.Loop() {
		mark := fmt.Sprintf("mark %d.", len(times))
		evaluate[bool](tab, `(window.painted = new Promise(done => {
			const watch = new MutationObserver(() => {
				if (!document.getElementById('rows').innerText.includes(`+quoted(mark)+`)) return;
				watch.disconnect();
				requestAnimationFrame(() => setTimeout(() => done(performance.timeOrigin + performance.now())));
			});
			watch.observe(document.body, {subtree: true, childList: true, characterData: true});
		}), true)`)
		last.Status.Conditions[0].Message = "It waits for " + mark
		from := time.Now()
		if err := p.Client.Status().Update(b.Context(), last); err != nil {
			b.Fatal(err)
		}
		times = append(times, evaluate[float64](tab, "window.painted")-float64(from.UnixMicro())/1000)
	}
	slices.Sort(times)
	b.ReportMetric(median(times), "p50-ms")
	b.ReportMetric(times[(len(times)-1)*95/100], "p95-ms")
	b.ReportMetric(0, "ns/op")
}

// createJobs creates jobs that wait, and returns the one with the last name.
func createJobs(b *testing.B, p *plane.Plane, count int) *batch.GenericJob {
	b.Helper()
	all, errs := make([]*batch.GenericJob, count), make([]error, count)
	const callers = 32
	var running sync.WaitGroup
	for caller := range callers {
		running.Go(func() {
			for i := caller; i < count; i += callers {
				all[i] = jobs.New(fmt.Sprintf("experiment-%05d", i), jobs.Role("worker", 1, "true"))
				all[i].Namespace = metav1.NamespaceDefault
				if errs[i] = p.Client.Create(b.Context(), all[i]); errs[i] != nil {
					return
				}
				all[i].Status.JobStatus = batch.JobStatus{Phase: batch.JobPending, RunMode: batch.RunImmediate, Replicas: 1, Conditions: []batch.JobCondition{{
					Type: batch.JobRunningCondition, Status: metav1.ConditionFalse, Reason: batch.ReasonUnschedulable, Message: "It waits.", LastTransitionTime: metav1.Now()}}}
				if errs[i] = p.Client.Status().Update(b.Context(), all[i]); errs[i] != nil {
					return
				}
			}
		})
	}
	running.Wait()
	for _, err := range errs {
		if err != nil {
			b.Fatal(err)
		}
	}
	return all[count-1]
}
