package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/smalldisk"
	"tensorstack.dev/batch/internal/testing/testenv"
	"tensorstack.dev/batch/test/kit/apiproxy"
	"tensorstack.dev/batch/test/kit/kubelet"
	"tensorstack.dev/batch/test/kit/namespace"
	"tensorstack.dev/batch/test/kit/plane"
	"tensorstack.dev/batch/test/kit/slowetcd"
)

// The table in docs/reliability.md lists the tests in this file, in wrongclocks_test.go and in foreign_test.go. Each
// test logs the figures that the table gives as measured.

// TestJobsWithoutFault runs the load of the other tests without a fault. Its figures are the baseline for those of the
// other tests.
func TestJobsWithoutFault(t *testing.T) {
	l := newLoad(t)
	startOperator(t, l.proxy.Kubeconfig)
	l.settleIn()
	l.begin()
	l.finish()
}

// TestJobsSurviveLongOutage verifies that jobs survive an outage of the API server that lasts longer than the
// operator's lease, and a kill of etcd during the outage.
func TestJobsSurviveLongOutage(t *testing.T) {
	l := newLoad(t)
	l.createOperatorNamespace()
	reviveOperator(t, l.proxy.Kubeconfig, electing)
	l.settleIn()
	l.begin()
	l.Must(l.Env.StopComponent(local.APIServer))
	away := time.After(*outage)
	l.Must(l.Env.Kill(local.Etcd))
	<-away
	l.Must(l.Env.StartComponent(local.APIServer))
	l.Must(l.Env.AwaitReady(t.Context()))
	back := time.Now()
	l.Logf("%s away; the operator wrote again %s after the API server was ready", *outage, l.awaitWrite(back).Round(10*time.Millisecond))
	l.finish()
}

// TestJobsSurviveLeadersKilledAtWrites verifies that jobs survive kills of the leader of two operators in the middle of
// the jobs. The first leader is killed between a write and its answer, its successor before a write arrives.
func TestJobsSurviveLeadersKilledAtWrites(t *testing.T) {
	const after = 15 // writes
	l := newLoad(t)
	l.createOperatorNamespace()
	second := apiproxy.Start(t, l.Env.Config)
	fates := []apiproxy.Fate{{Unanswered: true}, {Lost: true}}
	killed := make(chan time.Time, len(fates))
	var mu sync.Mutex
	writes, left, pending := 0, fates, false
	start := func(p *apiproxy.Proxy) { // each fate applies to the leader at that time
		o := reviveOperator(t, p.Kubeconfig, electing)
		p.Decide(func(r *http.Request) apiproxy.Fate {
			mu.Lock()
			defer mu.Unlock()
			if len(left) == 0 || pending || !apiproxy.IsWrite(r) || !strings.Contains(r.URL.Path, l.Namespace) {
				return apiproxy.Fate{}
			}
			if writes++; writes < after {
				return apiproxy.Fate{}
			}
			fate := left[0]
			// Until the kill, this leader sends other writes. The fate for its successor must not apply to them.
			pending = true
			fate.Then = func() {
				o.kill()
				mu.Lock()
				writes, left, pending = 0, left[1:], false
				mu.Unlock()
				killed <- time.Now()
			}
			return fate
		})
	}
	start(l.proxy)
	l.awaitLeader("t9k-operator", "")
	start(second)
	l.settleIn()
	l.begin()
	for range fates {
		at := l.awaitKill(killed)
		l.Logf("%s after the leader was killed, an operator wrote again", l.awaitWrite(at, l.proxy, second).Round(10*time.Millisecond))
	}
	l.finish()
}

// TestJobsSurviveSlowEtcd verifies that jobs survive if every request to etcd takes 200 ms longer, as with an
// overloaded disk.
func TestJobsSurviveSlowEtcd(t *testing.T) {
	l := newLoad(t)
	slowetcd.Start(l.Test, 100*time.Millisecond)
	startOperator(t, l.proxy.Kubeconfig)
	l.settleIn()
	l.begin()
	l.finish()
}

// TestJobsSurviveFailingWrites verifies that jobs survive if 5 % of the operator's writes fail: with a conflict, with
// too many requests, with an internal error, by losing the answer, or by losing the request.
func TestJobsSurviveFailingWrites(t *testing.T) {
	l := newLoad(t)
	counts := l.proxy.FailWrites(5)
	startOperator(t, l.proxy.Kubeconfig)
	l.settleIn()
	l.begin()
	l.finish()
	writes, failed := counts()
	l.Logf("of %d writes failed %v", writes, failed)
}

// TestJobsSurviveLostWatches verifies that jobs survive if all watches of the operator are repeatedly closed. Every
// other time, the next watches are answered with 410 Gone, so that the operator must list everything.
func TestJobsSurviveLostWatches(t *testing.T) {
	l := newLoad(t)
	startOperator(t, l.proxy.Kubeconfig)
	l.settleIn()
	lost := l.proxy.LoseWatches(t, 300*time.Millisecond)
	l.begin()
	for _, job := range l.all {
		l.awaitPhase(job.Name, batch.JobSucceeded)
	}
	l.Await("watches were ended and refused", func() error {
		if ended, refused := lost.Counts(); ended == 0 || refused == 0 {
			return fmt.Errorf("%d were ended, and %d were refused", ended, refused)
		}
		return nil
	})
	lost.Stop()
	l.finish()
	ended, refused := lost.Counts()
	l.Logf("%d watches were ended, and %d were answered with 410", ended, refused)
}

// TestJobsSurviveFullDisk verifies that restarting jobs survive a full disk of etcd, on which writes fail until space
// is freed.
func TestJobsSurviveFullDisk(t *testing.T) {
	requireFaults(t)
	t.Parallel()
	disk := t.TempDir()
	smalldisk.Mount(t, disk)
	p := plane.Start(t, testenv.Options{Parent: disk, Components: []string{local.Etcd, local.APIServer, local.CRDs, local.ControllerManager},
		Args: map[string][]string{local.ControllerManager: {"--controllers=garbage-collector-controller,serviceaccount-controller,root-ca-certificate-publisher-controller"}}})
	if err := kubelet.Start(t.Context(), p.Core); err != nil {
		t.Fatal(err)
	}
	w := &world{namespace.New(t, p)}
	w.AwaitServiceAccount()
	l := newLoadOn(w)
	// The jobs must last until the disk is full.
	startOperator(t, l.proxy.Kubeconfig, "jobs: {restartBackoff: 4s, maxRestartBackoff: 4s}")
	l.settleIn()
	l.begin()
	free := smalldisk.KeepFull(t, disk)
	l.fill()
	free()
	freed := time.Now()
	l.Must(l.Env.AwaitReady(t.Context()))
	l.Logf("the cluster was ready %s after the disk was freed, and the operator wrote %s after that", time.Since(freed).Round(10*time.Millisecond),
		l.awaitWrite(time.Now()).Round(10*time.Millisecond))
	l.finish()
}

// fill writes objects until etcd exits because it cannot store another one.
func (l *load) fill() {
	l.Helper()
	const most = 1000
	before := l.restarts(local.Etcd)
	for i := range most {
		filling := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("fill-%d", i)}, BinaryData: map[string][]byte{"data": make([]byte, 512<<10)}}
		// Without this timeout, the API server would wait longer for etcd.
		ctx, cancel := context.WithTimeout(l.Context(), 10*time.Second)
		_, err := l.Core.CoreV1().ConfigMaps(l.Namespace).Create(ctx, filling, metav1.CreateOptions{})
		cancel()
		if err != nil && l.restarts(local.Etcd) > before { // otherwise the machine is only slow
			l.Logf("the disk is full after %d objects and %s: %v", i, time.Since(l.began).Round(10*time.Millisecond), err)
			return
		}
	}
	l.Fatalf("etcd stores %d objects and more", most)
}

// restarts returns how often a component has been restarted.
func (l *load) restarts(component string) int {
	l.Helper()
	status, err := l.Env.Status()
	l.Must(err)
	i := slices.IndexFunc(status.Components, func(c local.ComponentStatus) bool { return c.Name == component })
	return status.Components[i].Restarts
}

// createOperatorNamespace creates the namespace of the operator's Lease.
func (w *world) createOperatorNamespace() {
	w.Helper()
	err := w.Client.Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "t9k-system"}})
	w.Must(client.IgnoreAlreadyExists(err))
}

// awaitKill waits until the next leader is killed, and returns the time.
func (w *world) awaitKill(killed <-chan time.Time) (at time.Time) {
	w.Helper()
	w.Await("a leader is killed", func() error {
		select {
		case at = <-killed:
			return nil
		default:
			return errors.New("it has not made enough writes")
		}
	})
	return at
}
