package integration

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// A pod's command tells the pretended kubelet what happens to it:
//
//	run           runs until somebody ends it
//	exit C0 C1 …  exits with C0 in the replica's first attempt, C1 in the second, and so on; the last code holds on
//	wait          is never bound to a node
//	stick         is bound to a node and never starts
const (
	commandRun  = "run"
	commandExit = "exit"
	commandWait = "wait"
	// commandStick leaves the pod pending.
	commandStick = "stick"
)

// A nodeSelector of nodeKey chooses the pod's node. On one whose name begins with lostPrefix pods start and never end.
const (
	nodeKey    = "node"
	usualNode  = "usual"
	lostPrefix = "lost"
)

const kubeletWorkers = 8

// kubelet does what scheduler and kubelets do to pods, as far as an API server can see.
type kubelet struct {
	core  kubernetes.Interface
	pods  cache.Indexer
	queue workqueue.TypedRateLimitingInterface[string]
}

// startKubelet runs a kubelet for all nodes until ctx ends. It survives API servers that come and go.
func startKubelet(ctx context.Context, core kubernetes.Interface) error {
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
	for range kubeletWorkers {
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
		err := k.sync(ctx, key)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			k.queue.AddRateLimited(key)
		} else {
			k.queue.Forget(key)
		}
		k.queue.Done(key)
	}
}

// sync brings a pod one step further. The pod's next version leads to the next step.
func (k *kubelet) sync(ctx context.Context, key string) error {
	o, ok, err := k.pods.GetByKey(key)
	if !ok || err != nil {
		return err
	}
	pod := o.(*corev1.Pod)
	node := usualNode
	if n := pod.Spec.NodeSelector[nodeKey]; n != "" {
		node = n
	}
	command := pod.Spec.Containers[0].Command
	switch {
	case pod.DeletionTimestamp != nil:
		if strings.HasPrefix(pod.Spec.NodeName, lostPrefix) {
			return nil
		}
		return k.core.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	case len(command) == 0 || command[0] == commandWait:
		return nil
	case pod.Spec.NodeName == "":
		return k.core.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}, metav1.CreateOptions{})
	case command[0] == commandStick:
		return nil
	case pod.Status.Phase == corev1.PodPending:
		return k.write(ctx, pod, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}})
	case pod.Status.Phase == corev1.PodRunning && command[0] == commandExit:
		code, err := exitCodeOf(pod)
		if err != nil {
			return err
		}
		return endPod(ctx, k.core, pod, code)
	}
	return nil
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

// endPod ends a pod's container with an exit code.
func endPod(ctx context.Context, core kubernetes.Interface, pod *corev1.Pod, code int32) error {
	phase := corev1.PodSucceeded
	if code != 0 {
		phase = corev1.PodFailed
	}
	now := metav1.Now()
	return (&kubelet{core: core}).write(ctx, pod, phase, corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, StartedAt: now, FinishedAt: now}})
}

func (k *kubelet) write(ctx context.Context, pod *corev1.Pod, phase corev1.PodPhase, state corev1.ContainerState) error {
	next := pod.DeepCopy()
	next.Status.Phase = phase
	next.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name, State: state, Image: pod.Spec.Containers[0].Image, Ready: phase == corev1.PodRunning}}
	_, err := k.core.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	return err
}
