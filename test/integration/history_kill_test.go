package integration

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
	"tensorstack.dev/batch/test/kit/program"
	"tensorstack.dev/batch/test/kit/watch"
)

// shortJobs is the number of jobs in TestKilledConsoleLosesNoEndedJob.
var shortJobs = flag.Int("short-jobs", 1_000, "number of jobs in TestKilledConsoleLosesNoEndedJob")

const (
	// lifetime is how long the pods of short jobs run.
	lifetime = 2 * time.Second
	// killInterval is how long a console is ready before it is killed.
	killInterval = 5 * time.Second
	// lag is the longest time that a console needs to record an event, so jobs that were deleted less than lag before
	// a kill may be missing. late is the longest delay with which the test itself observes the deletion of a job.
	lag, late = 2 * time.Second, time.Second
)

// shortLives runs short jobs with a time to live of 0. It records their pods, and the times at which the jobs are
// deleted.
type shortLives struct {
	*world
	mu   sync.Mutex
	uids map[string]types.UID
	gone map[string]time.Time
	pods map[string]*corev1.Pod // by job
	ends map[string]bool        // jobs whose pods were made to exit
	left chan struct{}          // closed once all jobs are deleted
}

// startShortLives starts creating n jobs in the background. Each requests from one to eight GPUs.
func (w *world) startShortLives(n int) *shortLives {
	w.Helper()
	l := &shortLives{world: w, uids: map[string]types.UID{}, gone: map[string]time.Time{}, pods: map[string]*corev1.Pod{}, ends: map[string]bool{}, left: make(chan struct{})}
	w.Watch(&batch.GenericJobList{}, func(all []client.Object) bool { return l.seeJobs(all, n) })
	w.Watch(&corev1.PodList{}, l.seePods)
	ctx := w.Context()
	var running sync.WaitGroup
	w.Cleanup(running.Wait)
	const creators = 4
	for c := range creators {
		running.Go(func() {
			for i := c; i < n && ctx.Err() == nil; i += creators {
				l.create(ctx, i)
			}
		})
	}
	return l
}

func (l *shortLives) create(ctx context.Context, i int) {
	now := int32(0)
	j := jobs.New("short-"+strconv.Itoa(i), jobs.Role("w", 1, kubelet.Run))
	j.Namespace, j.Spec.TTLSecondsAfterFinished = l.Namespace, &now
	gpus := corev1.ResourceList{"example.com/gpu": *resource.NewQuantity(int64(1+i%8), resource.DecimalSI)}
	j.Spec.ReplicaSpecs[0].Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: gpus, Limits: gpus}
	if err := l.Client.Create(ctx, j); err != nil && ctx.Err() == nil {
		l.Error(err)
	}
}

func (l *shortLives) seeJobs(all []client.Object, n int) (done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	there := make(map[string]bool, len(all))
	for _, j := range all {
		there[j.GetName()] = true
		l.uids[j.GetName()] = j.GetUID()
	}
	for name := range l.uids {
		if _, known := l.gone[name]; !known && !there[name] {
			l.gone[name] = time.Now()
		}
	}
	if done = len(l.gone) == n; done {
		close(l.left)
	}
	return done
}

// seePods records the pods and makes each exit once it has run for lifetime.
func (l *shortLives) seePods(all []client.Object) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range watch.Typed[*corev1.Pod](all) {
		job := p.Labels[batch.LabelJobName]
		l.pods[job] = p
		if p.Status.Phase == corev1.PodRunning && !l.ends[job] {
			l.ends[job] = true
			time.AfterFunc(lifetime, func() { l.end(l.Context(), p) })
		}
	}
	return false
}

// end makes the container of a pod exit with code 0, unless the pod no longer exists.
func (l *shortLives) end(ctx context.Context, p *corev1.Pod) {
	// PollUntilContextCancel fails only when ctx ends.
	_ = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		now, err := l.Core.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && kubelet.End(ctx, l.Core, now, 0) == nil, nil
	})
}

// gpuSeconds returns the GPU-seconds of a job's pod from its binding to the end of its container. It waits until the
// watch has shown that end, because the watch of the jobs may be ahead of that of the pods.
func (l *shortLives) gpuSeconds(job string) (seconds float64) {
	l.Helper()
	l.Await("the watch shows the end of the pod of "+job, func() error {
		l.mu.Lock()
		p := l.pods[job]
		l.mu.Unlock()
		if p == nil {
			return errors.New("it has shown no pod")
		}
		gpus := p.Spec.Containers[0].Resources.Requests["example.com/gpu"]
		for _, c := range p.Status.Conditions {
			if end := p.Status.ContainerStatuses; c.Type == corev1.PodScheduled && len(end) == 1 && end[0].State.Terminated != nil {
				seconds = gpus.AsApproximateFloat64() * end[0].State.Terminated.FinishedAt.Sub(c.LastTransitionTime.Time).Seconds()
				return nil
			}
		}
		return fmt.Errorf("its last status is %+v", p.Status)
	})
	return seconds
}

// span is a period in which a console was ready.
type span struct{ from, to time.Time }

// killedConsoles runs one console after another, at least two, and kills each, until all jobs are deleted. It returns
// the periods in which the consoles were ready.
func (l *shortLives) killedConsoles(args []string, probes string) (up []span) {
	l.Helper()
	for {
		select {
		case <-l.left:
			if len(up) > 1 {
				return up
			}
		default:
		}
		p, err := program.Start("/proc/self/exe", args, []string{asConsole + "=1"})
		l.Must(err)
		p.EndWith(l.T)
		l.Await("the console is ready", func() error { return consoleReady(probes) })
		ready := time.Now()
		<-time.After(killInterval)
		killed := time.Now()
		p.Kill()
		<-p.Ended()
		up = append(up, span{ready, killed})
	}
}

// archived returns the jobs of the person's namespace in the archive by name, and reports an error if one appears
// twice.
func (p *person) archived() map[string]*archive.Job {
	p.Helper()
	all := map[string]*archive.Job{}
	for after := ""; ; {
		code, body := p.call("GET", "/api/v1/history/jobs?limit=500&namespace="+p.Namespace+"&after="+after, nil)
		var list archive.JobList
		if err := json.Unmarshal([]byte(body), &list); err != nil || code != 200 {
			p.Fatalf("the list: %d %s", code, body)
		}
		for _, j := range list.Jobs {
			if all[j.Name] != nil {
				p.Errorf("%s is there twice", j.Name)
			}
			all[j.Name] = j
		}
		if after = list.Next; !list.More {
			return all
		}
	}
}

// TestKilledConsoleLosesNoEndedJob runs jobs whose pods run for 2 s and whose time to live is 0, while each console
// is killed 5 s after it is ready. It verifies that the archive contains each job that ended while a console was
// ready exactly once, with its end and its GPU-seconds.
func TestKilledConsoleLosesNoEndedJob(t *testing.T) {
	requireFaults(t)
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	kept := consoleArchive(filepath.Join(t.TempDir(), "archive.db"))
	args, _, probes := w.prepareConsole(kept)
	l := w.startShortLives(*shortJobs)
	up := l.killedConsoles(args, probes)

	viewer := w.person(w.startConsole(kept), "viewer", look...)
	all := viewer.archived()
	var seen, down, caught, lost int
	var held, want float64
	for name, at := range l.gone {
		j := all[name]
		ended := j != nil && j.Phase == string(batch.JobSucceeded) && !j.Gone.IsZero()
		switch {
		case !duringOne(up, at):
			if down++; ended {
				caught++
			} else if j == nil {
				lost++
			}
			continue
		case !ended || j.UID != string(l.uids[name]):
			t.Errorf("%s was gone at %s while a console was up, and the archive has %+v", name, at.Format(time.TimeOnly+".000"), j)
			continue
		}
		seen++
		want += l.gpuSeconds(name)
		held += viewer.gpuSeconds(j.UID)
	}
	if seen == 0 {
		t.Error("no job ended while a console was up")
	}
	if math.Abs(held-want) > want/1000 {
		t.Errorf("they held %.0f GPU-seconds, and the archive says %.0f", want, held)
	}
	t.Logf("%d jobs, %d consoles were killed: %d jobs ended while one was up, all are archived with %.0f GPU-seconds; %d ended around a kill: %d are archived with their ends, %d were never seen",
		len(l.gone), len(up), seen, held, down, caught, lost)
}

// duringOne reports whether, at the given time, a console had been ready for more than late and was not killed within
// lag.
func duringOne(up []span, at time.Time) bool {
	for _, s := range up {
		if at.After(s.from.Add(late)) && at.Add(lag).Before(s.to) {
			return true
		}
	}
	return false
}

// gpuSeconds returns the GPU-seconds of a job according to the archive.
func (p *person) gpuSeconds(uid string) float64 {
	p.Helper()
	code, body := p.call("GET", "/api/v1/history/jobs/"+uid, nil)
	var j archive.JobDetails
	if err := json.Unmarshal([]byte(body), &j); err != nil || code != 200 || len(j.Attempts) != 1 {
		p.Errorf("job %s: %d %s", uid, code, body)
		return 0
	}
	a := j.Attempts[0]
	gpus := a.Requests["example.com/gpu"]
	return gpus.AsApproximateFloat64() * a.Held(time.Time{}, a.Ended).Seconds()
}

// TestUsageIsThatOfThePods verifies that the GPU-hours of the archive equal those of the pods that existed.
func TestUsageIsThatOfThePods(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	viewer := w.person(w.startConsole(consoleArchive(filepath.Join(t.TempDir(), "archive.db"))), "viewer", look...)
	l := w.startShortLives(40)
	<-l.left
	want := 0.0
	for name := range l.gone {
		want += l.gpuSeconds(name) / 3600
	}
	w.Await("the archive has what the pods held", func() error {
		code, body := viewer.call("GET", "/api/v1/history/usage?by=namespace", nil)
		var list archive.UsageList
		if err := json.Unmarshal([]byte(body), &list); err != nil || code != 200 {
			return fmt.Errorf("%d %s", code, body)
		}
		got := 0.0
		for _, u := range list.Usage {
			if u.Key == w.Namespace && u.Resource == "example.com/gpu" {
				got += u.Hours
			}
		}
		if math.Abs(got-want) > want/1000 {
			return fmt.Errorf("the archive says %.5f GPU-hours, the pods held %.5f", got, want)
		}
		return nil
	})
}
