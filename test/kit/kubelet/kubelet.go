// Package kubelet simulates the effects of a scheduler and of kubelets on pods, as far as they are visible in the API
// server. It starts no processes. Start reading at Start and at the constants, which are the commands of pods.
package kubelet

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// These are the commands of pods. The first word of a pod's command selects the simulated behaviour of the pod.
const (
	// Run makes the pod run until End is called for it or it is deleted.
	Run = "run"
	// Exit makes the pod exit with the code of the replica's attempt. The codes follow the word, one for each
	// attempt; the last one also applies to all later attempts.
	Exit = "exit"
	// RunBound does what Run does, for a pod that another scheduler binds to a node.
	RunBound = "run-bound"
	// Wait keeps the pod from being bound to a node.
	Wait = "wait"
	// Stick binds the pod to a node, where it never starts.
	Stick = "stick"
)

const (
	// NodeKey is the key of a nodeSelector that names the pod's node.
	NodeKey = "node"
	// LostPrefix is the beginning of the names of lost nodes. Pods start there, but their deletion is never
	// completed.
	LostPrefix = "lost"

	defaultNode = "usual"

	// requestTimeout is the longest time for one request, like the timeout of a kubelet's own requests.
	requestTimeout = 30 * time.Second
)

// Workers is the number of pods that are handled at the same time.
const Workers = 8

// kubelet handles the pods of all nodes.
type kubelet struct {
	core  kubernetes.Interface
	pods  cache.Indexer
	queue workqueue.TypedRateLimitingInterface[string]
}

// Start starts a kubelet for all nodes and returns. The kubelet runs until ctx ends and continues after an outage of
// the API server.
func Start(ctx context.Context, core kubernetes.Interface) error {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](10*time.Millisecond, time.Second)
	informer := informers.NewSharedInformerFactory(core, 0).Core().V1().Pods().Informer()
	k := &kubelet{core: core, pods: informer.GetIndexer(), queue: workqueue.NewTypedRateLimitingQueue(limiter)}
	add := func(o any) {
		if key, err := cache.MetaNamespaceKeyFunc(o); err == nil {
			k.queue.Add(key)
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, o any) { add(o) },
	}); err != nil {
		return err
	}
	go informer.RunWithContext(ctx)
	context.AfterFunc(ctx, k.queue.ShutDown)
	var wg sync.WaitGroup
	for range Workers {
		wg.Go(func() { k.work(ctx) })
	}
	return nil
}

func (k *kubelet) work(ctx context.Context) {
	for {
		key, stop := k.queue.Get()
		if stop {
			return
		}
		// After any error, the pod is handled again. If the pod was deleted or has changed in the meantime, the next
		// attempt does nothing.
		once, cancel := context.WithTimeout(ctx, requestTimeout)
		err := k.sync(once, key)
		cancel()
		if err != nil {
			k.queue.AddRateLimited(key)
		} else {
			k.queue.Forget(key)
		}
		k.queue.Done(key)
	}
}

// sync moves a pod to its next state. The new version of the pod triggers the next call.
func (k *kubelet) sync(ctx context.Context, key string) error {
	o, ok, err := k.pods.GetByKey(key)
	if !ok || err != nil {
		return err
	}
	pod := o.(*corev1.Pod)
	node := defaultNode
	if n := pod.Spec.NodeSelector[NodeKey]; n != "" {
		node = n
	}
	command := pod.Spec.Containers[0].Command
	switch {
	case pod.DeletionTimestamp != nil:
		if strings.HasPrefix(pod.Spec.NodeName, LostPrefix) {
			return nil
		}
		return k.core.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	case waits(pod):
		return nil
	case pod.Spec.NodeName == "":
		return k.core.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}, metav1.CreateOptions{})
	case command[0] == Stick:
		return nil
	case pod.Status.Phase == corev1.PodPending:
		return k.write(ctx, pod, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}})
	case pod.Status.Phase == corev1.PodRunning && command[0] == Exit:
		code, err := exitCodeOf(pod)
		if err != nil {
			return err
		}
		return End(ctx, k.core, pod, code)
	}
	return nil
}

// waits reports whether the kubelet leaves a pod unchanged: the command of the pod is Wait, or there is none, or it is
// RunBound and the pod has no node yet.
func waits(pod *corev1.Pod) bool {
	command := pod.Spec.Containers[0].Command
	return len(command) == 0 || command[0] == Wait || command[0] == RunBound && pod.Spec.NodeName == ""
}

func exitCodeOf(pod *corev1.Pod) (int32, error) {
	codes := pod.Spec.Containers[0].Command[1:]
	attempt, err := strconv.Atoi(pod.Labels[batch.LabelReplicaAttempt])
	if err != nil {
		return 0, fmt.Errorf("pod %s: %w", pod.Name, err)
	}
	code, err := strconv.ParseInt(codes[min(attempt, len(codes)-1)], 10, 32)
	return int32(code), err
}

// End reports that the container of a pod has just terminated with an exit code.
func End(ctx context.Context, core kubernetes.Interface, pod *corev1.Pod, code int32) error {
	return EndAt(ctx, core, pod, code, metav1.Now())
}

// EndAt does what End does for a container that terminated in the past, as a late kubelet does.
func EndAt(ctx context.Context, core kubernetes.Interface, pod *corev1.Pod, code int32, at metav1.Time) error {
	phase := corev1.PodSucceeded
	if code != 0 {
		phase = corev1.PodFailed
	}
	return (&kubelet{core: core}).write(ctx, pod, phase, corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, StartedAt: at, FinishedAt: at}})
}

func (k *kubelet) write(ctx context.Context, pod *corev1.Pod, phase corev1.PodPhase, state corev1.ContainerState) error {
	next := pod.DeepCopy()
	next.Status.Phase = phase
	next.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name, State: state, Image: pod.Spec.Containers[0].Image, Ready: phase == corev1.PodRunning}}
	_, err := k.core.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	return err
}
