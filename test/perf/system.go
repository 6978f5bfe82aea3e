package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/config"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/testenv"
)

// system is a way to create the pods of jobs.
type system struct {
	name, title string
	// start starts the system's controller; nil if it has none.
	start func(*plane, *settings) (*process, error)
	// objects returns the objects to create for a job.
	objects func(name string, replicas int) []client.Object
	// jobs returns an empty list of the system's kind of job; nil if it has none.
	jobs func() client.ObjectList
	// runs reports whether the status of a job says that all its replicas run or have ended.
	runs func(client.Object) bool
	// finished reports whether the status of a job says that the job has succeeded.
	finished func(client.Object) bool
}

var systems = []*system{
	{name: "floor", title: "floor", objects: barePods},
	{
		// No controller of GenericJobs can be faster, because the job objects and the same pods have to be created.
		name: "objects", title: "floor with jobs",
		objects: func(job string, replicas int) []client.Object {
			return append(genericJob(job, replicas), barePods(job, replicas)...)
		},
	},
	{
		name: "job", title: "batch/v1 Job",
		start: startJobController,
		objects: func(name string, replicas int) []client.Object {
			n, indexed := int32(replicas), batchv1.IndexedCompletion
			return []client.Object{&batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
				Spec:       batchv1.JobSpec{Parallelism: &n, Completions: &n, CompletionMode: &indexed, Template: podTemplate(name)},
			}}
		},
		jobs: func() client.ObjectList { return &batchv1.JobList{} },
		runs: func(o client.Object) bool {
			job, ok := o.(*batchv1.Job)
			return ok && job.Status.Ready != nil && *job.Status.Ready+job.Status.Succeeded >= *job.Spec.Parallelism
		},
		finished: func(o client.Object) bool {
			job, ok := o.(*batchv1.Job)
			if !ok {
				return false
			}
			for _, c := range job.Status.Conditions {
				if c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue {
					return true
				}
			}
			return false
		},
	},
	{
		name: "ours", title: "GenericJob",
		start: startOperator, objects: genericJob,
		jobs: func() client.ObjectList { return &batch.GenericJobList{} },
		runs: func(o client.Object) bool {
			job, ok := o.(*batch.GenericJob)
			return ok && (job.Status.Phase == batch.JobRunning || job.Status.Phase == batch.JobSucceeded)
		},
		finished: func(o client.Object) bool {
			job, ok := o.(*batch.GenericJob)
			return ok && job.Status.Phase == batch.JobSucceeded
		},
	},
}

func barePods(job string, replicas int) []client.Object {
	var pods []client.Object
	for i := range replicas {
		t := podTemplate(job)
		t.Name, t.Namespace = fmt.Sprintf("%s-worker-%d", job, i), namespace
		pods = append(pods, &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec})
	}
	return pods
}

func genericJob(name string, replicas int) []client.Object {
	n := int32(replicas)
	return []client.Object{&batch.GenericJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       batch.GenericJobSpec{ReplicaSpecs: []batch.ReplicaSpec{{Type: "worker", Replicas: &n, Template: podTemplate(name)}}},
	}}
}

// jobLabel is the label that names the job of a pod, under every system.
const jobLabel = "perf.tensorstack.dev/job"

func podTemplate(job string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{jobLabel: job}},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "main", Image: "none", Command: []string{"sleep", "inf"}}},
		},
	}
}

// startJobController starts the controller of batch/v1 Job without the other controllers. The rate limits of its client
// are so high that it does not reach them.
func startJobController(p *plane, _ *settings) (*process, error) {
	kubeconfig, err := p.kubeconfig(userPeer)
	if err != nil {
		return nil, err
	}
	program, err := testenv.Binary()
	if err != nil {
		return nil, err
	}
	return p.run("job-controller", program, []string{"kube-controller-manager", "--kubeconfig=" + kubeconfig,
		"--controllers=job-controller", "--leader-elect=false", "--use-service-account-credentials=false",
		"--kube-api-qps=10000", "--kube-api-burst=10000", "--secure-port=0"})
}

// startOperator starts the operator with its webhook. It runs the operator's own program or, to record profiles, this
// program with the argument operator.
func startOperator(p *plane, s *settings) (*process, error) {
	kubeconfig, err := p.kubeconfig(userPeer)
	if err != nil {
		return nil, err
	}
	webhook, err := freeAddress()
	if err != nil {
		return nil, err
	}
	health, err := freeAddress()
	if err != nil {
		return nil, err
	}
	objects, err := config.Webhook(webhook)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		if err := p.client.Create(p.ctx, o); err != nil {
			return nil, err
		}
	}
	program := s.operator
	settings, err := local.OperatorSettings(fmt.Sprintf("{webhook: {bindAddress: '%s'}, health: {bindAddress: '%s'}, metrics: {bindAddress: '0'}}", webhook, health))
	if err != nil {
		return nil, err
	}
	file := filepath.Join(p.dir, "operator.yaml")
	if err := os.WriteFile(file, settings, 0o600); err != nil {
		return nil, err
	}
	args := []string{"--kubeconfig=" + kubeconfig, "--namespace=" + config.Namespace, "--config=" + file}
	var env []string
	if s.profile != "" {
		if err := os.MkdirAll(s.profile, 0o755); err != nil {
			return nil, err
		}
		if program, err = os.Executable(); err != nil {
			return nil, err
		}
		args, env = append([]string{"operator"}, args...), []string{profileEnv + "=" + s.profile}
	}
	operator, err := p.run("operator", program, args, env...)
	if err != nil {
		return nil, err
	}
	return operator, p.awaitHealthy("http://" + health + "/readyz")
}

// freeAddress returns an address of this machine with an unused port.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// awaitHealthy waits until a health endpoint answers 200.
func (p *plane) awaitHealthy(url string) error {
	for {
		request, err := http.NewRequestWithContext(p.ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if answer, err := http.DefaultClient.Do(request); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		if err := sleep(p.ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}
