package integration

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorization "k8s.io/api/authorization/v1"
	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/config"
	"tensorstack.dev/batch/internal/testing/testenv"
	"tensorstack.dev/batch/test/kit/kubelet"
	"tensorstack.dev/batch/test/kit/program"
)

// schedulerUser is the user name of the scheduler's ServiceAccount.
const schedulerUser = "system:serviceaccount:t9k-system:t9k-scheduler"

// TestInstalledSchedulerUsesExactlyItsPermissions runs the two replicas of config/scheduler with the installed
// arguments and ServiceAccount. One of them leads, and the other one takes over when the leader is killed. The test
// verifies that no request is forbidden and that the replicas use every permission of this project's own roles.
// config/scheduler also binds roles of Kubernetes: system:kube-scheduler, system:volume-scheduler and
// extension-apiserver-authentication-reader. The test does not check these, because every scheduler gets them and
// Kubernetes defines them.
func TestInstalledSchedulerUsesExactlyItsPermissions(t *testing.T) {
	w := newWorld(t)
	w.installDefault()
	w.awaitRightOf(schedulerUser, true, authorization.ResourceAttributes{Verb: "create", Group: coordination.GroupName, Resource: "leases", Namespace: config.Namespace})
	w.awaitRightOf(schedulerUser, true, authorization.ResourceAttributes{Verb: "watch", Group: scheduling.GroupVersion.Group, Resource: "podgroups"})
	log := w.auditEnd()
	w.paperNodes("paper-0", "paper-1")

	// A scheduler without streaming lists sends list requests.
	first := w.startScheduler("--feature-gates=WatchListClient=false")
	leader := w.awaitLeader("t9k-scheduler", "")
	second := w.startScheduler()
	second.awaitProbes(w)
	w.useScheduler()

	w.gangOf("left", "paper", 1, "1")
	w.awaitBound("left", 1)
	first.Kill()
	w.gangOf("taken-over", "paper", 4, "1")
	w.awaitLeader("t9k-scheduler", leader)
	w.awaitBound("taken-over", 4)
	w.awaitBound("left", 1)
	second.Signal(syscall.SIGTERM)
	<-second.Ended()
	// kube-scheduler exits with 1 when it loses its lease, even if it released the lease itself.
	if code := second.ExitCode(); code > 1 {
		t.Errorf("after SIGTERM the scheduler exits with code %d", code)
	}

	w.checkUse(schedulerUser, log, []string{"t9k-scheduler"}, noException)
}

// useScheduler makes the scheduler do everything it can do.
func (w *world) useScheduler() {
	w.Helper()
	low := w.paperQueue("low", 0)
	w.paperQueue("paper", 5)
	high := w.paperQueue("high", 10)
	w.gangOf("first", low, 4, "2")
	w.awaitBound("first", 4)
	w.Await("the group reports it", func() error { return w.checkGroup("first", metav1.ConditionTrue, scheduling.ReasonScheduled) })

	// A group and a pod that cannot be scheduled each report this in their conditions.
	w.gangOf("too-many", low, 9, "2")
	w.paperPod("too-large", low, "", "5")
	w.Await("the group reports the reason", func() error {
		return w.checkGroup("too-many", metav1.ConditionFalse, scheduling.ReasonImpossible)
	})
	w.Await("the pod reports the reason", func() error {
		p := &corev1.Pod{}
		w.Must(w.Get("too-large", p))
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && strings.Contains(c.Message, "cpu") {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %+v", p.Status.Conditions)
	})

	// A group with a higher priority preempts others.
	w.gangOf("important", high, 4, "2")
	w.awaitBound("important", 4)
	w.Await("the pods of the first group are evicted", func() error {
		for i := range 4 {
			if err := w.Get(fmt.Sprintf("first-%d", i), &corev1.Pod{}); client.IgnoreNotFound(err) != nil || err == nil {
				return fmt.Errorf("pod %d: %w", i, err)
			}
		}
		return nil
	})
	w.removeGang("important", 4)
	w.bindVolume(low)
}

// bindVolume makes the scheduler choose the volume for a claim that waits for its pod.
func (w *world) bindVolume(queue string) {
	w.Helper()
	wait := storagev1.VolumeBindingWaitForFirstConsumer
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}, Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &wait}
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}, Spec: corev1.PersistentVolumeSpec{Capacity: size, StorageClassName: class.Name,
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp"}}}}
	for _, o := range []client.Object{class, volume} {
		w.Must(w.Client.Create(w.Context(), o))
		w.deleteLater(o)
	}
	// No controller that sets the phase is running.
	w.UpdateStatus(volume, func() { volume.Status.Phase = corev1.VolumeAvailable })
	w.Create(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim"}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class.Name,
		AccessModes: volume.Spec.AccessModes, Resources: corev1.VolumeResourceRequirements{Requests: size}}})
	w.paperPod("with-volume", queue, "", "1", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}}}
	})
	w.Await("the volume is reserved for the claim", func() error {
		w.Must(w.Client.Get(w.Context(), client.ObjectKeyFromObject(volume), volume))
		if volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.Name != "claim" {
			return fmt.Errorf("it is %+v", volume.Spec.ClaimRef)
		}
		return nil
	})
}

// paperNodes adds nodes of 4 CPUs that exist only as objects, without a kubelet.
func (w *world) paperNodes(names ...string) {
	w.Helper()
	for _, name := range names {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"paper": w.Namespace}}}
		w.Must(w.Client.Create(w.Context(), n))
		w.deleteLater(n)
		n.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"), corev1.ResourcePods: resource.MustParse("110")}
		n.Status.Allocatable = n.Status.Capacity
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Test"}}
		w.Must(w.Client.Status().Update(w.Context(), n))
		n.Spec.Taints = nil // admission taints new nodes as not ready
		w.Must(w.Client.Update(w.Context(), n))
	}
}

func (w *world) deleteLater(o client.Object) {
	w.Cleanup(func() {
		if err := w.Client.Delete(context.Background(), o); client.IgnoreNotFound(err) != nil {
			w.Error(err)
		}
	})
}

// paperQueue adds a queue that uses the nodes of paperNodes, and returns its name.
func (w *world) paperQueue(name string, priority int32) string {
	w.Helper()
	q := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: scheduling.QueueSpec{Priority: priority,
		NamespaceSelector: &metav1.LabelSelector{}, NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"paper": w.Namespace}}}}
	w.Must(w.Client.Create(w.Context(), q))
	w.deleteLater(q)
	return name
}

func (w *world) gangOf(name, queue string, n int, cpu string) {
	w.Helper()
	w.Create(&scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: scheduling.PodGroupSpec{MinMember: int32(n), Queue: queue}})
	for i := range n {
		w.paperPod(fmt.Sprintf("%s-%d", name, i), queue, name, cpu)
	}
}

func (w *world) removeGang(name string, n int) {
	w.Helper()
	for i := range n {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: fmt.Sprintf("%s-%d", name, i)}}
		w.Must(w.Client.Delete(w.Context(), pod, client.GracePeriodSeconds(0)))
	}
	w.Must(w.Client.Delete(w.Context(), &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}}))
}

func (w *world) paperPod(name, queue, group, cpu string, change ...func(*corev1.Pod)) {
	w.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{scheduling.LabelQueue: queue}},
		Spec: corev1.PodSpec{SchedulerName: scheduling.SchedulerName, TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{Name: "main", Image: "none", Command: []string{kubelet.Wait},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}}}}
	if group != "" {
		p.Labels[scheduling.LabelGroupName] = group
	}
	for _, c := range change {
		c(p)
	}
	w.Create(p)
}

func (w *world) awaitBound(group string, n int) {
	w.Helper()
	w.Await(fmt.Sprintf("%d pods of %s have a node", n, group), func() error {
		list := &corev1.PodList{}
		w.Must(w.Client.List(w.Context(), list, client.InNamespace(w.Namespace), client.MatchingLabels{scheduling.LabelGroupName: group}))
		bound := 0
		for i := range list.Items {
			if list.Items[i].Spec.NodeName != "" {
				bound++
			}
		}
		if bound != n {
			return fmt.Errorf("%d pods have a node", bound)
		}
		return nil
	})
}

func (w *world) checkGroup(name string, status metav1.ConditionStatus, reason string) error {
	g := &scheduling.PodGroup{}
	w.Must(w.Get(name, g))
	for _, c := range g.Status.Conditions {
		if c.Type == scheduling.GroupScheduled && c.Status == status && c.Reason == reason {
			return nil
		}
	}
	return fmt.Errorf("its conditions are %+v", g.Status.Conditions)
}

// awaitLeader waits until the Lease of a program has a holder whose identity is not old, and returns the holder's
// identity.
func (w *world) awaitLeader(program, old string) (holder string) {
	w.Helper()
	w.Await("a "+program+" leads", func() error {
		lease := &coordination.Lease{}
		if err := w.Client.Get(w.Context(), types.NamespacedName{Namespace: config.Namespace, Name: program}, lease); err != nil {
			return err
		}
		if h := lease.Spec.HolderIdentity; h != nil && *h != "" && *h != old {
			holder = *h
			return nil
		}
		return errors.New("none leads")
	})
	return holder
}

// installedScheduler is a process with the arguments of the installed Deployment of the scheduler.
type installedScheduler struct {
	*program.Program
	address string
	probes  []string
}

// startScheduler starts a process as one replica of the installed Deployment, with a shorter lease and the additional
// arguments more.
func (w *world) startScheduler(more ...string) *installedScheduler {
	w.Helper()
	d := &appsv1.Deployment{}
	w.Must(w.Client.Get(w.Context(), types.NamespacedName{Namespace: config.Namespace, Name: "t9k-scheduler"}, d))
	if *d.Spec.Replicas != 2 {
		w.Errorf("%d replicas", *d.Spec.Replicas)
	}
	container := d.Spec.Template.Spec.Containers[0]
	binary, err := testenv.Binary()
	w.Must(err)
	address := freeAddress(w.T)
	_, port, err := net.SplitHostPort(address)
	w.Must(err)
	kubeconfig := w.serviceAccountKubeconfig(d.Spec.Template.Spec.ServiceAccountName)
	args := append([]string{"kube-scheduler"}, w.withMounted("t9k-scheduler", container.Args)...)
	args = append(args, "--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig, "--bind-address=127.0.0.1", "--secure-port="+port, "--leader-elect-lease-duration=10s", "--leader-elect-renew-deadline=8s", "--leader-elect-retry-period=1s")
	child, err := program.Start(binary, append(args, more...), nil)
	w.Must(err)
	child.EndWith(w)
	s := &installedScheduler{Program: child, address: address}
	for _, p := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
		s.probes = append(s.probes, p.HTTPGet.Path)
	}
	return s
}

// withMounted returns the arguments of a container. It replaces the path after --config=, where the ConfigMap with
// the name is mounted, with the path of a local copy.
func (w *world) withMounted(name string, args []string) []string {
	w.Helper()
	const flag = "--config="
	mounted := &corev1.ConfigMap{}
	w.Must(w.Client.Get(w.Context(), types.NamespacedName{Namespace: config.Namespace, Name: name}, mounted))
	all := slices.Clone(args)
	for i, arg := range all {
		if path, ok := strings.CutPrefix(arg, flag); ok {
			file := filepath.Join(w.TempDir(), filepath.Base(path))
			w.Must(os.WriteFile(file, []byte(mounted.Data[filepath.Base(path)]), 0o600))
			all[i] = flag + file
		}
	}
	return all
}

// awaitProbes waits until the probes of the Deployment succeed. Like the probes of a kubelet, the requests are
// anonymous.
func (s *installedScheduler) awaitProbes(w *world) {
	w.Helper()
	// Kubelets do not verify certificates either.
	c := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for _, path := range s.probes {
		w.Await("the scheduler answers at "+path, func() error {
			response, err := c.Get("https://" + s.address + path)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			if response.StatusCode != http.StatusOK {
				return errors.New(response.Status)
			}
			return nil
		})
	}
}

// TestMissingPermissionOfSchedulerIsNamed verifies that a scheduler without a permission is not ready and names the
// permission, and that it becomes ready without a restart once the permission is granted.
func TestMissingPermissionOfSchedulerIsNamed(t *testing.T) {
	w := newWorld(t)
	w.installDefault()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "t9k-scheduler"}}
	var whole []rbacv1.PolicyRule
	w.Update(role, func() {
		whole = slices.Clone(role.Rules)
		role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "podgroups/status") })
	})
	w.awaitRightOf(schedulerUser, false, authorization.ResourceAttributes{Verb: "patch", Group: scheduling.GroupVersion.Group, Resource: "podgroups", Subresource: "status"})
	s := w.startScheduler()
	// Kubelets do not verify certificates either.
	c := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	ask := func() (int, string, error) {
		answer, err := c.Get("https://" + s.address + "/readyz")
		if err != nil {
			return 0, "", err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		return answer.StatusCode, string(text), err
	}
	w.Await("the scheduler says what it may not do", func() error {
		code, text, err := ask()
		if err == nil && (code != http.StatusInternalServerError || !strings.Contains(text, "the scheduler may not patch podgroups.scheduler.tensorstack.dev/status: ")) {
			err = fmt.Errorf("%d: %s", code, text)
		}
		return err
	})
	w.Update(role, func() { role.Rules = whole })
	s.awaitProbes(w)
}
