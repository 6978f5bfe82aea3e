package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/audit"
	"tensorstack.dev/batch/internal/testing/testenv"
)

// stage is an API server with Node objects and no kubelets: pods are bound and never run. The contenders are started on
// it one after the other.
type stage struct {
	*plane
	settings *settings
	seen     *bindings
	nodes    []string
}

func startStage(ctx context.Context, s *settings, nodes int) (*stage, error) {
	dir, err := os.MkdirTemp("", "t9k-perf-")
	if err != nil {
		return nil, err
	}
	st := &stage{plane: &plane{dir: dir}, settings: s}
	st.ctx, st.cancel = context.WithCancelCause(ctx)
	if err := st.start(nodes); err != nil {
		err = st.explain(err)
		st.stop()
		return nil, fmt.Errorf("starting an API server: %w", err)
	}
	return st, nil
}

func (st *stage) start(nodes int) error {
	tokens, err := st.tokens()
	if err != nil {
		return err
	}
	st.env, err = testenv.New(testenv.Options{
		Components:  []string{local.Etcd, local.APIServer, local.CRDs},
		AuditPolicy: audit.Policy("Metadata", userPeer),
		// The stage has no controller that removes the taint of new nodes.
		Args: map[string][]string{local.APIServer: {"--token-auth-file=" + tokens, "--disable-admission-plugins=TaintNodesByCondition"}},
	})
	if err != nil {
		return err
	}
	st.audit = audit.Open(st.env.AuditLog)
	st.config = st.as(userBench)
	if st.client, err = newClient(st.config); err != nil {
		return err
	}
	if err := st.ensureQueue(scheduling.DefaultQueue); err != nil {
		return err
	}
	if err := st.addNodes(nodes); err != nil {
		return err
	}
	st.seen, err = observeBindings(st.plane)
	return err
}

// ensureQueue creates a queue that all namespaces may use, unless the queue exists.
func (st *stage) ensureQueue(name string) error {
	q := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: scheduling.QueueSpec{NamespaceSelector: &metav1.LabelSelector{}}}
	return client.IgnoreAlreadyExists(st.client.Create(st.ctx, q))
}

func (st *stage) addNodes(n int) error {
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods: resource.MustParse("110")}
	st.nodes = names("node-", n)
	return parallel(st.ctx, st.nodes, func(name string) error {
		return st.client.Create(st.ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
			Status: corev1.NodeStatus{Capacity: room, Allocatable: room,
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Benchmark"}}},
		})
	})
}

// clientQPS and clientBurst are the client limits of both schedulers in requests per second, as in the embedded
// cluster.
const clientQPS, clientBurst = "1000", "2000"

// startScheduler starts a scheduler, which is a part of this program, and returns when its caches have synced. The
// returned context ends with the scheduler.
func (st *stage) startScheduler(part string, args ...string) (context.Context, *process, error) {
	kubeconfig, err := st.kubeconfig(userPeer)
	if err != nil {
		return nil, nil, err
	}
	address, err := freeAddress()
	if err != nil {
		return nil, nil, err
	}
	port := address[len("127.0.0.1:"):]
	if part == "t9k-scheduler" {
		// As in an installation, the t9k-scheduler does not schedule the pods of the default scheduler.
		settings, err := local.SchedulerSettings([]string{scheduling.SchedulerName})
		if err != nil {
			return nil, nil, err
		}
		file := filepath.Join(st.dir, "scheduler.yaml")
		if err := os.WriteFile(file, settings, 0o600); err != nil {
			return nil, nil, err
		}
		args = append([]string{"--config=" + file}, args...)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	args = append([]string{part, "--kubeconfig=" + kubeconfig, "--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=" + port,
		"--cert-dir=" + filepath.Join(st.dir, "certs"), "--kube-api-qps=" + clientQPS, "--kube-api-burst=" + clientBurst,
		"--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig}, args...)
	var env []string
	if st.settings.profile != "" {
		dir := filepath.Join(st.settings.profile, strconv.Itoa(len(st.processes))+"-"+part)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, nil, err
		}
		env = []string{profileEnv + "=" + dir}
	}
	child, err := startProcess(st.dir, part, self, args, env)
	if err != nil {
		return nil, nil, err
	}
	st.processes = append(st.processes, child)
	ctx, cancel := context.WithCancelCause(st.ctx)
	go func() {
		<-child.ended
		cancel(fmt.Errorf("%s has ended", part))
	}()
	return ctx, child, awaitServing(ctx, "https://"+address+"/readyz")
}

// awaitServing waits until a scheduler reports that it is ready. The scheduler's certificate is self-signed.
func awaitServing(ctx context.Context, url string) error {
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer c.CloseIdleConnections()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if answer, err := c.Do(request); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		if err := sleep(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
}

// clear deletes the pods and groups that have the measurement's label.
func (st *stage) clear(run string) error {
	of := client.MatchingLabels{runLabel: run}
	in := client.InNamespace(namespace)
	if err := st.client.DeleteAllOf(st.ctx, &corev1.Pod{}, in, of, client.GracePeriodSeconds(0)); err != nil {
		return err
	}
	return st.client.DeleteAllOf(st.ctx, &scheduling.PodGroup{}, in, of)
}
