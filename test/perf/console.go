package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/local"
)

// Parameters of the console workload.
const (
	consoleJobs = 10_000
	// consoleRunning is the number of jobs that run, each with a pod on a node. The others have succeeded.
	consoleRunning = 2_000
	consoleViewers = 100
	// consoleChanges is the number of status changes for which the delay to the viewers is measured, one at a time.
	consoleChanges = 50
	// consolePause is the time from the arrival of a change at the last viewer to the next change.
	consolePause = time.Second
	consoleReads = 30
)

// consoleWorkload returns the workload that measures the t9k-console: its Jobs page, and the time from a change at the
// API server until the changed row has reached the viewers.
func consoleWorkload() workload {
	one, users := &system{name: "one", title: "100 viewers, one user"}, &system{name: "users", title: "100 users"}
	return workload{
		name: "console", title: fmt.Sprintf("the console with %d jobs, %d of which run", consoleJobs, consoleRunning), optional: true,
		columns: []*system{one, users},
		together: func(ctx context.Context, s *settings, add func(*system, *result)) error {
			p, err := startPlane(ctx, s, &system{})
			if err != nil {
				return err
			}
			defer p.stop()
			c := &consoleBench{plane: p, all: make([]*batch.GenericJob, consoleJobs)}
			if err := c.prepare(s); err != nil {
				return p.explain(err)
			}
			for _, column := range []struct {
				sys  *system
				user func(int) string
			}{{one, func(int) string { return userBench }}, {users, viewer}} {
				r, err := c.measure(column.user)
				if err != nil {
					return p.explain(err)
				}
				add(column.sys, r)
			}
			return nil
		},
		targets: []target{
			{of: "one", figure: "page_p50", value: 200}, {of: "one", figure: "row_p95", value: 500}, {of: "one", figure: "rss_peak", value: 300},
			{of: "one", figure: "requests_growth", value: 1}, {of: "users", figure: "row_p95", value: 500}, {of: "users", figure: "rss_peak", value: 300},
		},
	}
}

// viewer returns the name of the n-th user of the console.
func viewer(n int) string { return fmt.Sprintf("viewer-%d", n) }

// consoleBench is a control plane with jobs and a console.
type consoleBench struct {
	*plane
	all     []*batch.GenericJob // the jobs
	console *process
	base    string        // the URL of the console
	filled  time.Duration // from the start of the console until it showed all jobs
	changed int           // the number of status changes so far
}

// prepare creates the jobs and starts the console.
func (c *consoleBench) prepare(s *settings) error {
	numbers := make([]int, consoleJobs)
	for i := range numbers {
		numbers[i] = i
	}
	if err := parallel(c.ctx, numbers, func(i int) error { return c.job(i, s.nodes) }); err != nil {
		return fmt.Errorf("creating jobs: %w", err)
	}
	kubeconfig, err := c.kubeconfig(userPeer)
	if err != nil {
		return err
	}
	address, err := freeAddress()
	if err != nil {
		return err
	}
	c.base = "http://" + address
	began := time.Now()
	settings, err := local.ConsoleSettings(fmt.Sprintf(`{server: {bindAddress: %q}, health: {bindAddress: "0"}, metrics: {bindAddress: "0"}}`, address))
	if err != nil {
		return err
	}
	file := kubeconfig + ".console.yaml"
	if err := os.WriteFile(file, settings, 0o600); err != nil {
		return err
	}
	c.console, err = c.run("console", filepath.Join(filepath.Dir(s.operator), "t9k-console"), []string{"--kubeconfig", kubeconfig, "--config", file})
	if err != nil {
		return err
	}
	for { // the caches have synced once the page counts all jobs
		page, err := c.read("/", userBench)
		if err == nil && strings.Contains(page, fmt.Sprintf("of %d jobs", consoleJobs)) {
			c.filled = time.Since(began)
			return nil
		}
		if err := sleep(c.ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// job creates the i-th job with its status, and with a pod if the job runs.
func (c *consoleBench) job(i, nodes int) error {
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none", Command: []string{"python", "train.py"}}}}}
	replicas := int32(1)
	j := &batch.GenericJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("experiment-%05d", i), Labels: map[string]string{"team": fmt.Sprint("team-", i%20)}}}
	j.Spec.ReplicaSpecs = []batch.ReplicaSpec{{Type: "worker", Replicas: &replicas, Template: template}}
	if err := c.client.Create(c.ctx, j); err != nil {
		return err
	}
	c.all[i] = j
	now := metav1.Now()
	running := i >= consoleJobs-consoleRunning
	replica := batch.ReplicaStatus{Name: j.Name + "-worker-0", UID: "u", Phase: batch.ReplicaSucceeded}
	j.Status.JobStatus = batch.JobStatus{Phase: batch.JobSucceeded, RunMode: batch.RunImmediate, StartTime: &now, Replicas: 1}
	c1 := batch.JobCondition{Type: batch.JobCompleted, Status: metav1.ConditionTrue, Reason: "AllSucceeded", Message: "All replicas have succeeded.", LastTransitionTime: now}
	if running {
		replica.Phase, j.Status.Phase, j.Status.Aggregate.Running = batch.ReplicaRunning, batch.JobRunning, 1
		c1.Type, c1.Reason, c1.Message = batch.JobRunningCondition, batch.ReasonReplicasRunning, "All replicas run."
	} else {
		j.Status.Aggregate.Succeeded, j.Status.CompletionTime = 1, &now
	}
	j.Status.Tasks, j.Status.Conditions = []batch.Tasks{{Type: "worker", Replicas: []batch.ReplicaStatus{replica}}}, []batch.JobCondition{c1}
	if err := c.client.Status().Update(c.ctx, j); err != nil || !running {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: replica.Name, Labels: map[string]string{batch.LabelJobName: j.Name, batch.LabelJobKind: "GenericJob",
		batch.LabelReplicaType: "worker", batch.LabelReplicaRank: "0", batch.LabelReplicaAttempt: "0"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: batch.GroupVersion.String(), Kind: "GenericJob", Name: j.Name, UID: j.UID, Controller: new(true)}}}, Spec: *template.Spec.DeepCopy()}
	pod.Spec.NodeName = fmt.Sprintf("node-%d", i%nodes)
	return c.client.Create(c.ctx, pod)
}

func (c *consoleBench) open(ctx context.Context, path, user, accept string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+user)
	r.Header.Set("Accept", accept)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		answer.Body.Close()
		return nil, fmt.Errorf("reading %s: %s", path, answer.Status)
	}
	return answer, nil
}

// read returns a page as a user gets it.
func (c *consoleBench) read(path, user string) (string, error) {
	answer, err := c.open(c.ctx, path, user, "text/html")
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	return string(page), err
}

// measure measures the times of pages, the console's requests while jobs change, first with one viewer and then with
// all, the delays of these changes with all viewers, and the console's memory.
func (c *consoleBench) measure(user func(int) string) (*result, error) {
	r := &result{Figures: map[string]float64{"filled": c.filled.Seconds()}}
	for figure, path := range map[string]string{"page": "/", "page_search": "/?q=experiment-09&sort=-ran"} {
		var times []time.Duration
		for range consoleReads {
			began := time.Now()
			if _, err := c.read(path, userBench); err != nil {
				return nil, err
			}
			times = append(times, time.Since(began))
		}
		r.Figures[figure+"_p50"], r.Figures[figure+"_p99"] = 1000*quantile(times, 50).Seconds(), 1000*quantile(times, 99).Seconds()
	}
	_, alone, err := c.watched(1, user)
	if err != nil {
		return nil, err
	}
	times, requests, err := c.watched(consoleViewers, user)
	if err != nil {
		return nil, err
	}
	r.Figures["row_p50"], r.Figures["row_p95"] = 1000*quantile(times, 50).Seconds(), 1000*quantile(times, 95).Seconds()
	r.Figures["requests_alone"], r.Figures["requests_all"] = alone, requests
	r.Figures["requests_growth"] = requests / max(1, alone)
	r.Figures["rss"], r.Figures["rss_peak"], err = c.console.memory()
	return r, err
}

// watched changes jobs while viewers look at the Jobs page. It returns the times until each viewer has got each change,
// and the number of requests per second that the console has sent to the API server during the changes. The first
// requests about the viewers' rights come earlier and do not count.
func (c *consoleBench) watched(viewers int, user func(int) string) (times []time.Duration, requests float64, err error) {
	ctx, stop := context.WithCancel(c.ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	seen := make(chan string, viewers*consoleChanges)
	for i := range viewers {
		answer, err := c.open(ctx, "/?sort=-name", user(i), "text/event-stream")
		if err != nil {
			return nil, 0, err
		}
		running.Go(func() {
			defer answer.Body.Close()
			if err := marks(answer.Body, seen); ctx.Err() == nil {
				seen <- streamEnded + err.Error()
			}
		})
	}
	for range viewers { // the first message of each stream has the whole page
		if _, err := await(c.ctx, seen); err != nil {
			return nil, 0, err
		}
	}
	if _, err := c.audit.Next(); err != nil {
		return nil, 0, err
	}
	began := time.Now()
	for range consoleChanges {
		if err := sleep(c.ctx, consolePause); err != nil {
			return nil, 0, err
		}
		row, err := c.change(viewers, seen)
		if err != nil {
			return nil, 0, err
		}
		times = append(times, row...)
	}
	span := time.Since(began)
	events, err := c.audit.Next()
	total := 0
	for i := range events {
		if events[i].User == userPeer && !ofElection(events[i]) {
			total++
		}
	}
	return times, float64(total) / span.Seconds(), err
}

// change changes a job whose row all viewers see, and returns the times until each of them has got the change.
func (c *consoleBench) change(viewers int, seen <-chan string) (times []time.Duration, err error) {
	c.changed++
	mark := fmt.Sprintf("mark-%d.", c.changed)
	at := time.Now()
	j := c.all[consoleJobs-1-c.changed%20] // it is on the first page
	running := &j.Status.Conditions[0]
	running.Status, running.Reason, running.Message = metav1.ConditionFalse, batch.ReasonUnschedulable, "It waits for "+mark // the row shows it
	if err := c.client.Status().Update(c.ctx, j); err != nil {
		return nil, err
	}
	for len(times) < viewers {
		text, err := await(c.ctx, seen)
		if err != nil {
			return nil, fmt.Errorf("awaiting %s: %w", mark, err)
		}
		if text == mark {
			times = append(times, time.Since(at))
		}
	}
	return times, nil
}

// streamEnded begins a mark that says why a stream ended.
const streamEnded = "ended: "

// await returns the next mark. It fails if a stream has ended or if no mark comes within a minute.
func await(ctx context.Context, seen <-chan string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	select {
	case text := <-seen:
		if reason, ended := strings.CutPrefix(text, streamEnded); ended {
			return "", errors.New("a stream ended: " + reason)
		}
		return text, nil
	case <-ctx.Done():
		return "", errors.Join(errors.New("it has not come"), context.Cause(ctx))
	}
}

// marks sends the last mark of each message of a stream to seen, and an empty text for a message without a mark. Marks
// are the texts that change writes into statuses. It returns the error that ends the stream.
func marks(stream io.Reader, seen chan<- string) error {
	in := bufio.NewReaderSize(stream, 1<<20)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		if !strings.HasPrefix(line, "data:") {
			continue
		}
		mark := ""
		if i := strings.LastIndex(line, "mark-"); i >= 0 {
			mark, _, _ = strings.Cut(line[i:], ".")
			mark += "."
		}
		seen <- mark
	}
}
