package integration

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/kubelet"
	"tensorstack.dev/batch/test/kit/namespace"
	"tensorstack.dev/batch/test/kit/program"
)

// TestJobsSurviveForeignObjects verifies that jobs run and that the operator touches no foreign object in a cluster
// full of pods and jobs of other owners, some of which have the labels of a job's pods.
func TestJobsSurviveForeignObjects(t *testing.T) {
	l := newLoad(t)
	o := startOperator(t, l.proxy.Kubeconfig)
	l.settleIn()
	before := memoryOf(t, o)
	others := l.createForeign(*foreign)
	l.Logf("with %d foreign objects the operator has %d MiB instead of %d", *foreign, memoryOf(t, o)>>20, before>>20)
	o.Kill()
	startOperator(t, l.proxy.Kubeconfig)
	began := time.Now()
	l.begin()
	l.Logf("a new operator wrote after %s", l.awaitWrite(began).Round(10*time.Millisecond))
	l.finish()
	pods, err := l.Core.CoreV1().Pods(others).List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	l.Must(err)
	kept, err := l.Core.BatchV1().Jobs(others).List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	l.Must(err)
	if n := len(pods.Items) + len(kept.Items); n != *foreign {
		t.Errorf("%d foreign objects are left of %d", n, *foreign)
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.DeletionTimestamp != nil || len(p.OwnerReferences) > 0 {
			t.Fatalf("foreign pod %s was touched: %+v", p.Name, p.ObjectMeta)
		}
	}
}

// createForeign creates n objects, pods and Kubernetes Jobs, in a separate namespace, and returns the namespace.
func (l *load) createForeign(n int) string {
	l.Helper()
	other := l.Beside(namespace.New(l.T, l.Plane).Namespace)
	other.AwaitServiceAccount()
	began := time.Now()
	numbers := make(chan int, n)
	for i := range n {
		numbers <- i
	}
	close(numbers)
	const writers = 16
	var wg sync.WaitGroup
	failures := make([]error, writers)
	for w := range writers {
		wg.Go(func() {
			for i := range numbers {
				if err := createForeign(other, i); err != nil {
					failures[w] = fmt.Errorf("creating foreign object %d: %w", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	l.Must(errors.Join(failures...))
	l.Logf("%d foreign objects created in %s", n, time.Since(began).Round(100*time.Millisecond))
	return other.Namespace
}

// createForeign creates foreign object i: a Kubernetes Job for one in ten, a pod with the labels of a GenericJob for
// another one in ten, and a pod without labels otherwise.
func createForeign(t *namespace.Test, i int) error {
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.org/none", Command: []string{kubelet.Wait}}},
		AutomountServiceAccountToken: new(bool), RestartPolicy: corev1.RestartPolicyNever}
	meta := metav1.ObjectMeta{Name: fmt.Sprintf("foreign-%d", i)}
	if i%10 == 0 {
		_, err := t.Core.BatchV1().Jobs(t.Namespace).Create(t.Context(), &batchv1.Job{ObjectMeta: meta,
			Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: spec}}}, metav1.CreateOptions{})
		return err
	}
	if i%10 == 1 {
		meta.Labels = map[string]string{batch.LabelJobName: "job-0", batch.LabelReplicaAttempt: "7"}
	}
	_, err := t.Core.CoreV1().Pods(t.Namespace).Create(t.Context(), &corev1.Pod{ObjectMeta: meta, Spec: spec}, metav1.CreateOptions{})
	return err
}

// memoryOf returns the resident memory of a program in bytes.
func memoryOf(t *testing.T, p *program.Program) int {
	t.Helper()
	n, err := p.Memory()
	if err != nil {
		t.Fatal(err)
	}
	return n
}
