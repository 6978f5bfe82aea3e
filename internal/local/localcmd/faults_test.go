package localcmd_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/smalldisk"
	"tensorstack.dev/batch/internal/testing/testenv"
	"tensorstack.dev/batch/internal/testing/threads"
	"tensorstack.dev/batch/test/kit/await"
)

// soon is the longest time until status reports a program that does not answer. On an idle machine it takes one or two
// seconds.
const soon = 20 * time.Second

// TestFrozenAndKilledComponents verifies that a cluster reports frozen programs and restarts killed ones, for each of
// its programs in turn. It does not run in parallel with other tests, because status must report a frozen program
// within a limited time.
func TestFrozenAndKilledComponents(t *testing.T) {
	u := newUser(t)
	u.t9k(t, "up")
	t.Run("frozen components are reported", u.checkFrozenComponents)
	t.Run("the cluster recovers from killed components", u.checkKilledComponents)
}

// checkFrozenComponents freezes each program in turn and verifies that status reports it as not ready in time, and as
// ready after it continues. While the machine process is frozen, status must fail.
func (u *user) checkFrozenComponents(t *testing.T) {
	t.Helper()
	client := local.NewClient(u.dir("default"))
	frozen := func(name string, pid int, check func(*testing.T)) {
		t.Run(name, func(t *testing.T) {
			freeze(t, pid)
			began := time.Now()
			check(t)
			if took := time.Since(began); took > soon {
				t.Errorf("status took %s", took)
			}
			thaw(t, pid)
			await.Until(t, "recovery", func() error {
				s, err := client.Probe(t.Context())
				if err == nil && !s.Ready() {
					err = fmt.Errorf("%+v", s)
				}
				return err
			})
		})
	}
	all := u.status(t, "default")
	for _, c := range all.Components {
		if c.PID == 0 {
			continue
		}
		frozen(c.Name, c.PID, func(t *testing.T) {
			s, err := client.Probe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if now := s.Component(c.Name); now.State != local.StateNotReady || s.Ready() {
				t.Errorf("it is reported as %s (%s)", now.State, now.Message)
			}
		})
	}
	frozen("machine", all.PID, func(t *testing.T) {
		if out, err := u.try(t.Context(), "status"); err == nil {
			t.Errorf("status printed\n%s", out)
		}
	})
	freeze(t, pidOf(t, all, local.Scheduler))
	defer thaw(t, pidOf(t, all, local.Scheduler))
	if out, err := u.try(t.Context(), "status"); err == nil || !strings.Contains(out, "not ready") || !strings.Contains(out, "NotReady") {
		t.Errorf("with a frozen scheduler status printed\n%s", out)
	}
}

// checkKilledComponents kills each program in turn. It verifies that the cluster restarts only this program, that a new
// pod then runs and resolves names, and that a running pod is not affected.
func (u *user) checkKilledComponents(t *testing.T) {
	t.Helper()
	c := u.client(t, "default")
	create(t, c, pod("steady", "sleep 1000000"))
	steady := awaitPhase(t, c, "steady", corev1.PodRunning).Status.ContainerStatuses[0].ContainerID

	for _, name := range local.AllComponents() {
		if name == local.CRDs || name == local.Webhook || name == local.LostPods {
			continue
		}
		before := u.status(t, "default")
		kill(t, pidOf(t, before, name))
		await.Until(t, "recovery from the end of "+name, func() error {
			s := u.status(t, "default")
			if now := s.Component(name); now.State != local.StateReady || now.PID == before.Component(name).PID || !s.Ready() {
				return fmt.Errorf("%+v", now)
			}
			return nil
		})
		for _, now := range u.status(t, "default").Components {
			if was := before.Component(now.Name); now.Name != name && now.PID != was.PID {
				t.Errorf("the end of %s ended %s: process %d, was %d", name, now.Name, now.PID, was.PID)
			}
		}
		probe := "after-" + name
		create(t, c, pod(probe, "getent hosts kubernetes.default && echo done"))
		awaitPhase(t, c, probe, corev1.PodSucceeded)
		if got := logsOf(t, c, probe); !strings.HasSuffix(got, "done\n") {
			t.Errorf("after the end of %s a pod printed %q", name, got)
		}
	}
	if got := awaitPhase(t, c, "steady", corev1.PodRunning).Status.ContainerStatuses[0]; got.ContainerID != steady || got.RestartCount != 0 {
		t.Errorf("the pod's container is %s (%d restarts), was %s", got.ContainerID, got.RestartCount, steady)
	}
}

// freeze stops a process. It returns when all threads have stopped, because until then the process can still answer.
func freeze(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // the process may have exited
	await.Until(t, "the stop of all threads", func() error { return threads.Stopped(pid) })
}

func thaw(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Error(err)
	}
}

// TestFullEtcdIsReported verifies that status reports an etcd that has reached its quota and refuses writes.
func TestFullEtcdIsReported(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t, testenv.Options{Args: map[string][]string{local.Etcd: {"--quota-backend-bytes=3000000"}}})
	fill(t, kubernetes.NewForConfigOrDie(env.Config))
	await.Until(t, "etcd not ready", func() error {
		s, err := local.NewClient(local.Dir(env.Dir)).Probe(t.Context())
		if err != nil {
			return err
		}
		if c := s.Component(local.Etcd); c.State != local.StateNotReady || !strings.Contains(c.Message, "etcd is full and takes no writes") {
			return fmt.Errorf("etcd is %s: %s", c.State, c.Message)
		}
		return nil
	})
}

// TestFullDiskIsReported verifies that status and up report a disk without space for etcd, and that the cluster
// continues when there is space again.
func TestFullDiskIsReported(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	smalldisk.Mount(t, u.state)
	t.Cleanup(func() { u.t9k(t, "reset", "--grace", "0s") })
	u.t9k(t, "up")
	free := smalldisk.KeepFull(t, u.state)
	fill(t, u.client(t, "default"))
	const want = "no space left on the disk of "
	await.Until(t, "status that reports the full disk", func() error {
		out, err := u.try(t.Context(), "status")
		if err == nil || !strings.Contains(out, want) {
			return fmt.Errorf("status printed\n%s", out)
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	if out, err := u.try(ctx, "up"); err == nil || !strings.Contains(out, want) {
		t.Errorf("up: %v\n%s", err, out)
	}
	free()
	await.Until(t, "the cluster goes on", func() error {
		if out, err := u.try(t.Context(), "up"); err != nil || !strings.Contains(out, "is already running") {
			return fmt.Errorf("up: %w\n%s", err, out)
		}
		return nil
	})
}

// fill writes to the API server until it refuses writes.
func fill(t *testing.T, c kubernetes.Interface) {
	t.Helper()
	const most = 1000
	for i := range most {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("fill-%d", i)}, BinaryData: map[string][]byte{"data": make([]byte, 512<<10)}}
		if _, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Logf("after %d objects: %v", i, err)
			return
		}
	}
	t.Fatalf("the API server accepted %d objects", most)
}
